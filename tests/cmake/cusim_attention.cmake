if(TANDEM_CUSIM_BUILT)
  cusim_test(cusim_attention_test attention_test.c)
endif()
