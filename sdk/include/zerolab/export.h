#pragma once
// Marks what libzerolab_sdk.so exports; everything else is hidden.
#define ZEROLAB_API __attribute__((visibility("default")))
