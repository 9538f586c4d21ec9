add_test(NAME lint_layers COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/layers.py
  ${CMAKE_SOURCE_DIR})
add_test(NAME lint_paths COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/paths.py
  ${CMAKE_SOURCE_DIR})
# What --help tells stands in docs/*.md.
add_test(NAME lint_flags COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/lint/flags.py
  $<TARGET_FILE:tandem> ${CMAKE_SOURCE_DIR})
# What script/test says of what failed.
add_test(NAME failures_test COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/unit/failures_test.py)
