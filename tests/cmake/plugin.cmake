# The loader of the CUDA plug-in: needs no CUDA.
tandem_test(plugin_test ${CMAKE_SOURCE_DIR}/tests/unit/plugin_test.c tandem_kernels)
set(kind 0)
foreach(name right other_abi smaller old_driver no_device no_entry larger)
  add_library(tandem_strange_${name} MODULE ${CMAKE_SOURCE_DIR}/tests/unit/plugin_strange.c)
  target_link_libraries(tandem_strange_${name} PRIVATE tandem_flags)
  target_compile_definitions(tandem_strange_${name} PRIVATE KIND=${kind})
  set_target_properties(tandem_strange_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  add_dependencies(plugin_test tandem_strange_${name})
  math(EXPR kind "${kind} + 1")
endforeach()
