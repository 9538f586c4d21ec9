/* The actions of a step of store_case.h's model, as a plan gives them (plan.schedule tests those;
 * here the store is to obey some that are right). */
#ifndef TANDEM_TESTS_STORE_CASE_LIST_H
#define TANDEM_TESTS_STORE_CASE_LIST_H

#include "tests/parallel/store_case_want.h"

struct case_list {
    Action *actions; /* owned */
    size_t num;
};

struct case_list case_list_new(const struct store_case *c);

#endif
