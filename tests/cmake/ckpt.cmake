tandem_test(safetensors_test ${CMAKE_SOURCE_DIR}/tests/unit/safetensors_test.c tandem_ckpt)
