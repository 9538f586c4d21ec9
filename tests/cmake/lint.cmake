add_test(NAME lint_layers COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/layers.py
  ${CMAKE_SOURCE_DIR})
