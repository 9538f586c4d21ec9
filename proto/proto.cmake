# Messages from .proto files: protobuf-c code, short names, descriptors for reflection, field docs.
set(PROTO_NAMES jobs runs checkpoints cluster plans admin worker)
set(PROTO_OUT ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${PROTO_OUT}/proto)
set(proto_files)
set(proto_c)
set(proto_h)
set(names_h)
foreach(p ${PROTO_NAMES} health reflection)
  list(APPEND proto_files ${CMAKE_SOURCE_DIR}/proto/tandem/v1/${p}.proto)
  list(APPEND proto_c ${PROTO_OUT}/tandem/v1/${p}.pb-c.c)
  list(APPEND proto_h ${PROTO_OUT}/tandem/v1/${p}.pb-c.h)
endforeach()
foreach(p ${PROTO_NAMES})
  list(APPEND names_h ${PROTO_OUT}/tandem/v1/${p}.pb-c.h)
endforeach()
add_custom_command(
  OUTPUT ${proto_c} ${proto_h}
  COMMAND ${PROTOC_C} --c_out=${PROTO_OUT} -I${CMAKE_SOURCE_DIR}/proto ${proto_files}
  DEPENDS ${proto_files} VERBATIM)
add_custom_command(
  OUTPUT ${PROTO_OUT}/proto/names.h
  COMMAND ${AWK} -f ${CMAKE_SOURCE_DIR}/proto/names.awk ${names_h} > ${PROTO_OUT}/proto/names.h
  DEPENDS ${names_h} ${CMAKE_SOURCE_DIR}/proto/names.awk VERBATIM)
add_library(tandem_messages STATIC ${proto_c} ${PROTO_OUT}/proto/names.h)
target_include_directories(tandem_messages SYSTEM PUBLIC ${PROTO_OUT})
target_compile_options(tandem_messages PRIVATE -w)
target_link_libraries(tandem_messages PUBLIC PkgConfig::PROTOBUF_C)

# Descriptor set of everything, embedded, for reflection.
add_custom_command(
  OUTPUT ${PROTO_OUT}/descriptors.c
  COMMAND ${PROTOC} -I${CMAKE_SOURCE_DIR}/proto --include_imports
          --descriptor_set_out=${PROTO_OUT}/descriptors.pb ${proto_files}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/embed.py ${PROTO_OUT}/descriptors.c
          rpc_descriptors ${PROTO_OUT}/descriptors.pb
  DEPENDS ${proto_files} ${CMAKE_SOURCE_DIR}/cmake/embed.py VERBATIM)
add_library(tandem_rpc_descriptors STATIC ${PROTO_OUT}/descriptors.c)

# Comments above fields, for `tandem explain`.
add_custom_command(
  OUTPUT ${PROTO_OUT}/docs_table.c
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/proto/docs.py ${PROTO_OUT}/docs_table.c
          ${proto_files}
  DEPENDS ${proto_files} ${CMAKE_SOURCE_DIR}/proto/docs.py VERBATIM)

file(GLOB proto_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.c)
list(FILTER proto_sources EXCLUDE REGEX "/rpc_[a-z]+\\.c$")
add_library(tandem_proto STATIC ${PROTO_OUT}/docs_table.c ${proto_sources})
target_link_libraries(tandem_proto PRIVATE tandem_flags PUBLIC tandem_base tandem_messages
  PkgConfig::YAML PkgConfig::JANSSON)

# The one client of gRPC.
add_library(tandem_rpc_client STATIC proto/rpc_client.c proto/rpc_tls.c proto/rpc_look.c
  proto/rpc_why.c)
target_link_libraries(tandem_rpc_client PRIVATE tandem_flags
  PUBLIC tandem_proto ${GRPC_LIBRARY} ${GPR_LIBRARY} OpenSSL::SSL)

# Migrations as text, embedded in order of their names.
file(GLOB migrations CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/migrations/*.sql)
if(migrations)
  add_custom_command(
    OUTPUT ${PROTO_OUT}/migrations.c
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/embed_sql.py ${PROTO_OUT}/migrations.c
            ${migrations}
    DEPENDS ${migrations} ${CMAKE_SOURCE_DIR}/cmake/embed_sql.py VERBATIM)
  add_library(tandem_migrations STATIC ${PROTO_OUT}/migrations.c)
else()
  add_library(tandem_migrations INTERFACE)
endif()
