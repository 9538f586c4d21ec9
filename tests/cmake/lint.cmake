add_test(NAME lint_layers COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/layers.py
  ${CMAKE_SOURCE_DIR})
add_test(NAME lint_paths COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/paths.py
  ${CMAKE_SOURCE_DIR})
