/* gRPC core isn't instrumented: what TSan must be told about tags. What happened before one was
 * handed in happens before it comes out. */
#ifndef TANDEM_PROTO_RPC_TAGS_H
#define TANDEM_PROTO_RPC_TAGS_H

#if defined(__SANITIZE_THREAD__)
#define RPC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RPC_TSAN 1
#endif
#endif
#ifdef RPC_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define TAG_IN(t) __tsan_release(t)
#define TAG_OUT(t) __tsan_acquire(t)
#else
#define TAG_IN(t) ((void)(t))
#define TAG_OUT(t) ((void)(t))
#endif

#endif
