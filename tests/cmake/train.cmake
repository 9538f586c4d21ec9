add_library(test_bad_model STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/bad_model.c)
target_link_libraries(test_bad_model PRIVATE tandem_flags PUBLIC test_gang)
tandem_test(trainer_test ${CMAKE_SOURCE_DIR}/tests/parallel/trainer_test.c test_bad_model)
set_tests_properties(trainer_test PROPERTIES TIMEOUT 900 LABELS threads)
tandem_test(give_back_test ${CMAKE_SOURCE_DIR}/tests/parallel/give_back_test.c test_gang)
tandem_test(late_test ${CMAKE_SOURCE_DIR}/tests/parallel/late_test.c test_bad_model)
set_tests_properties(late_test PROPERTIES TIMEOUT 900 LABELS threads)
tandem_test(reference_test
  "${CMAKE_SOURCE_DIR}/tests/parallel/reference_test.c;${CMAKE_SOURCE_DIR}/tests/parallel/reference.c"
  test_gang)
set_tests_properties(reference_test PROPERTIES TIMEOUT 600)
tandem_test(optim_test
  "${CMAKE_SOURCE_DIR}/tests/unit/optim_test.c;${CMAKE_SOURCE_DIR}/tests/parallel/golden.c"
  tandem_optim PkgConfig::JANSSON)
tandem_test(rank_process_test ${CMAKE_SOURCE_DIR}/tests/parallel/rank_process_test.c test_gang)
add_dependencies(rank_process_test tandem-rank)
tandem_test(generate_test
  "${CMAKE_SOURCE_DIR}/tests/unit/generate_test.c;${CMAKE_SOURCE_DIR}/tests/parallel/reference.c"
  tandem_tool test_gang)

# Not a test: prints where the time of a step goes.
add_executable(step_bench ${CMAKE_SOURCE_DIR}/tests/bench/step_bench.c)
target_link_libraries(step_bench PRIVATE tandem_flags test_gang)
target_compile_definitions(step_bench PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
