# A real rank that tests can hold still.
add_executable(held_rank ${CMAKE_SOURCE_DIR}/runtime/rank/main.c
  ${CMAKE_SOURCE_DIR}/tests/e2e/helpers/held_rank.c)
target_link_libraries(held_rank PRIVATE tandem_flags tandem_rank)
target_link_options(held_rank PRIVATE -Wl,--wrap=rank_run,--wrap=report_step)
