tandem_test(safetensors_test ${CMAKE_SOURCE_DIR}/tests/unit/safetensors_test.c tandem_ckpt)
tandem_test(loader_test
  "${CMAKE_SOURCE_DIR}/tests/unit/loader_test.c;${CMAKE_SOURCE_DIR}/tests/unit/data_case.c"
  tandem_data)
add_library(ckpt_fixture STATIC ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_fixture.c
  ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_layout.c)
target_link_libraries(ckpt_fixture PRIVATE tandem_flags PUBLIC tandem_ckpt PkgConfig::CMOCKA)
target_compile_definitions(ckpt_fixture PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
tandem_test(ckpt_layout_test ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_layout_test.c ckpt_fixture)
set_tests_properties(ckpt_layout_test PROPERTIES LABELS threads)
target_link_options(ckpt_layout_test PRIVATE -Wl,--wrap=fsync)
tandem_test(ckpt_spread_test ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_spread_test.c ckpt_fixture)
target_link_options(ckpt_spread_test PRIVATE -Wl,--wrap=fsync -Wl,--wrap=pread)
tandem_test(ckpt_test ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_test.c ckpt_fixture)
tandem_test(ckpt_weights_test ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_weights_test.c ckpt_fixture)
tandem_test(ckpt_kill_test ${CMAKE_SOURCE_DIR}/tests/unit/ckpt_kill_test.c ckpt_fixture)
foreach(call write pwrite ftruncate fsync rename renameat2 mkdir unlink remove close)
  target_link_options(ckpt_kill_test PRIVATE -Wl,--wrap=${call})
endforeach()
# Its reader alone: with all of tandem_ckpt the backends would be built for it.
file(GLOB safetensors_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/ckpt/safetensors*.c)
tandem_fuzz(safetensors_fuzz
  "${CMAKE_SOURCE_DIR}/tests/fuzz/safetensors_fuzz.c;${safetensors_sources}" tandem_base
  PkgConfig::JANSSON)
tandem_fuzz(token_file_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/token_file_fuzz.c tandem_data)
