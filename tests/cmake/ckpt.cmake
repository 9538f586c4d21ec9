tandem_test(safetensors_test ${CMAKE_SOURCE_DIR}/tests/unit/safetensors_test.c tandem_ckpt)
tandem_test(loader_test ${CMAKE_SOURCE_DIR}/tests/unit/loader_test.c tandem_data)
