/* What launcherd takes for the cause, in the output of a failed rank. */
#include "launcherd/cause/causes.h"
#include "launcherd/cause/first.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static struct causes causes;
static struct cause found;
static struct cause_end end;

static void begin(void)
{
    memset(&causes, 0, sizeof causes);
    causes_open(&causes, false);
    end = (struct cause_end){.exit_code = 1};
}

static void print(uint32_t stream, const char *text)
{
    causes_add(&causes, stream, text_of(text), 1);
}

static bool best(void)
{
    memset(&found, 'x', sizeof found);
    return causes_best(&causes, &end, &found);
}

/* stderr alone. */
static bool read_output(const char *text)
{
    begin();
    print(1, text);
    return best();
}

static enum cause_kind kind_of(const char *text)
{
    return read_output(text) ? found.kind : CAUSE_NONE;
}

#define FRAMES "  File \"/w/train.py\", line 3, in <module>\n    main()\n    ^^^^^^\n"
#define FIRST "Traceback (most recent call last):\n"

TEST(a_traceback_at_the_end_of_an_output)
{
    CHECK(read_output("step 1\nstep 2\n" FIRST FRAMES "RuntimeError: shape mismatch\n"));
    CHECK_STR(found.line, "RuntimeError: shape mismatch");
    CHECK_STR(found.text, FIRST FRAMES "RuntimeError: shape mismatch\n");
    CHECK(read_output(FIRST FRAMES "KeyboardInterrupt"));
    CHECK_STR(found.line, "KeyboardInterrupt");
}

TEST(what_cannot_be_shown_is_replaced)
{
    CHECK(read_output("Traceback (most recent call last):\n  x\xff\nE: \x01\xc3\n"));
    CHECK_STR(found.line, "E: ??");
    CHECK_STR(found.text, "Traceback (most recent call last):\n  x?\nE: ??\n");
}

TEST(the_last_of_several_tracebacks)
{
    CHECK(read_output(FIRST FRAMES
                      "KeyError: 'a'\n\nDuring handling of the above exception, another "
                      "exception occurred:\n\n" FIRST FRAMES
                      "torch.OutOfMemoryError: CUDA out of memory\n"
                      "[W1122 20:00:00 ProcessGroup.cpp:1] Warning: not destroyed\n\nbye\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then torch.OutOfMemoryError: CUDA out of memory");
    CHECK_STR(found.text,
              FIRST FRAMES "torch.OutOfMemoryError: CUDA out of memory\n"
                           "[W1122 20:00:00 ProcessGroup.cpp:1] Warning: not destroyed\n");
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" FIRST FRAMES)); /* the second is cut off */
    CHECK_STR(found.line, "KeyError: 'a'");
}

#define HANDLING "\nDuring handling of the above exception, another exception occurred:\n\n"
#define CAUSE "\nThe above exception was the direct cause of the following exception:\n\n"

TEST(the_root_cause_of_a_chain_is_named_first)
{
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" CAUSE FIRST FRAMES
                                   "ValueError: no a\nin line 3\n" HANDLING FIRST FRAMES
                                   "RuntimeError: not closed\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then RuntimeError: not closed");
    CHECK_STR(found.text, FIRST FRAMES "RuntimeError: not closed\n");
    CHECK(read_output("[rank1]: " FIRST "[rank1]: KeyError: 'a'\n"
                      "\n[rank1]: The above exception was the direct cause of the following "
                      "exception:\n\n[rank1]: " FIRST "[rank1]: ValueError: b\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then ValueError: b");
    /* two that have nothing to do with each other */
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" HANDLING FIRST FRAMES
                                   "ValueError: b\n" FIRST FRAMES "OSError: c\n"));
    CHECK_STR(found.line, "OSError: c");
    /* the same one, raised again */
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" HANDLING FIRST FRAMES "KeyError: 'a'\n"));
    CHECK_STR(found.line, "KeyError: 'a'");
    /* the first one was cut off */
    CHECK(read_output("KeyError: 'a'\n" HANDLING FIRST FRAMES "ValueError: b\n"));
    CHECK_STR(found.line, "ValueError: b");
}

/* Python ends with code 1 for an exception that nobody caught, perhaps after many lines. A program
 * that goes on and ends with a code of its own had caught it. */
TEST(an_exception_that_was_caught_long_before)
{
    begin();
    print(1, FIRST FRAMES "ValueError: handled\n\n");
    for (int i = 0; i < 400; i++)
        print(1, "step\n\n");
    CHECK(best());
    CHECK_STR(found.line, "ValueError: handled");
    print(1, "step\n");
    CHECK(best());
    CHECK_STR(found.line, "step");
    print(1, FIRST FRAMES "KeyError: 'a'\n");
    CHECK(best());
    CHECK_STR(found.line, "KeyError: 'a'");
    end.exit_code = 3;
    CHECK(best());
    CHECK_STR(found.line, "KeyError: 'a'");
    print(1, "going on without\nquota: 0 of 500 hours left\n");
    CHECK(best());
    CHECK_STR(found.line, "quota: 0 of 500 hours left");
}

TEST(a_crash_after_an_exception_that_was_caught)
{
    begin();
    end = (struct cause_end){.signal = SIGSEGV};
    print(1, "cache: cannot open x: Permission denied\n");
    CHECK(!best());
    print(1, FIRST FRAMES "OSError: no cache\ngoing on\nstep 1\n");
    CHECK(!best());
    print(1, "Fatal Python error: Segmentation fault\n\n");
    CHECK(best());
    CHECK_STR(found.line, "Fatal Python error: Segmentation fault");
}

/* What it went on to, and failed by, comes before what it had caught. */
TEST(an_error_after_an_exception_that_was_caught)
{
    begin();
    print(1, FIRST FRAMES "ConnectionResetError: reset\n");
    print(0, "retrying\n");
    print(1, "once more\ncannot save: PermissionError: [Errno 13] Permission denied\n");
    CHECK(best());
    CHECK_STR(found.line, "cannot save: PermissionError: [Errno 13] Permission denied");
    CHECK(read_output("--- Logging error ---\n" FIRST FRAMES "TypeError: not enough arguments\n"
                      "Call stack:\n  File \"a.py\", line 3\n    x()\nMessage: '%d'\n"
                      "Arguments: ()\nCRITICAL:root:no free port\n"));
    CHECK_STR(found.line, "CRITICAL:root:no free port");
}

/* In a script, errors that it ignores may come before the one that ends it; one program's first
 * line says more than its last. */
TEST(errors_of_several_programs)
{
    CHECK(read_output("rmdir: failed to remove 'x': No such file or directory\n"
                      "tar: data.tar: Cannot open: No such file or directory\n"
                      "tar: Error is not recoverable: exiting now\n"));
    CHECK_STR(found.line, "tar: data.tar: Cannot open: No such file or directory");
    CHECK(read_output("1 ERROR could not reach stats, going on\n1 INFO loading\n"
                      "1 CRITICAL tokenizer.json is corrupt, giving up\n"));
    CHECK_STR(found.line, "1 CRITICAL tokenizer.json is corrupt, giving up");
    begin();
    print(0, "validation failed: 3\n");
    print(1, "invalid value beta2=1.5\nmean squared error: 0.31\n");
    CHECK(best());
    CHECK_STR(found.line, "invalid value beta2=1.5");
}

TEST(a_carriage_return_ends_a_line)
{
    CHECK(read_output(FIRST FRAMES "ValueError: bad batch\r 50%|##  | 5/10\r 60%|### | 6/10\r"));
    CHECK_STR(found.line, "ValueError: bad batch");
}

TEST(panics)
{
    CHECK(read_output("thread 'main' (12) panicked at a.rs:1:73:\n"
                      "called `Result::unwrap()` on an `Err` value\nnote: run with more\n"));
    CHECK(strstr(found.line, "a.rs:1:73: called `Result::unwrap()`") != NULL);
    CHECK(read_output("fatal error: concurrent map writes\n\ngoroutine 18 [running]:\n"
                      "main.worker(0x1)\n\t/src/a.go:41\nexit status 2\n"));
    CHECK_STR(found.line, "fatal error: concurrent map writes");
    CHECK(read_output("ok\nfatal: out of tokens"));
    CHECK_STR(found.line, "fatal: out of tokens");
}

TEST(prefixes_of_torch_distributed)
{
    CHECK(read_output(
        "[rank12]: Traceback (most recent call last):\n[rank12]:   File \"a.py\", line 1\n"
        "[rank12]: ValueError: no: really\n[rank12]:W not ours\n"));
    CHECK_STR(found.line, "ValueError: no: really");
    CHECK_STR(found.text, "Traceback (most recent call last):\n  File \"a.py\", line "
                          "1\nValueError: no: really\nW not ours\n");
    CHECK(!read_output("[rank]: Traceback (most recent call last):\n[rank1\n[rank1]:\n"));
}

TEST(a_program_with_a_syntax_error)
{
    CHECK(read_output(
        "  File \"/w/train.py\", line 3\n    def (\n        ^\nSyntaxError: invalid syntax\n"));
    CHECK_STR(found.line, "SyntaxError: invalid syntax");
    CHECK_EQ(kind_of("  File \"/w/train.py\", line 3\n    x\nValueError: of one that is cut\n"),
             CAUSE_ERROR);
}

TEST(a_group_of_exceptions)
{
    CHECK(read_output(
        "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File \"a.py\"\n    | ValueError: 1\n"
        "    +---------------- 2 ----------------\n    | OSError: 2\n"
        "    +------------------------------------\n"));
    CHECK_STR(found.line, "ExceptionGroup: two (2 sub-exceptions): ValueError: 1");
}

TEST(an_output_without_a_cause)
{
    static const char *const none[] = {"", "\n", "WARNING: slow\n",
                                       "frame #3: f + 0x1 (0x7f in libc.so)\n",
                                       " 45%|####  | 45/100 [00:01<00:01, 30.1it/s]\n"};

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        CHECK(!read_output(none[i]));
    begin();
    print(0, "done\n"); /* on stdout it is no message */
    CHECK(!best());
    begin();
    end = (struct cause_end){.signal = SIGKILL};
    print(1, "the data is ready\n");
    CHECK(!best());
    end = (struct cause_end){.signal = SIGKILL, .oom = true};
    print(1, FIRST FRAMES "ValueError: 1\n");
    CHECK(!best());
}

TEST(the_kinds_of_single_lines)
{
    static const struct {
        const char *text;
        enum cause_kind kind;
    } lines[] = {
        {"nothing more to do\n", CAUSE_LAST},
        {"ValueError: only a line\n", CAUSE_ERROR},
        {"ERROR: the data is missing\nbye\n", CAUSE_ERROR},
        {"usage: train.py\ntrain.py: error: unrecognized arguments: --x\n", CAUSE_FATAL},
        {"run.sh: line 3: trian: command not found\n", CAUSE_FATAL},
        {"./net: error while loading shared libraries: libx.so: cannot open shared object file\n",
         CAUSE_FATAL},
        {"net: net.c:12: main: Assertion `x > 0' failed.\n", CAUSE_FATAL},
        {"==12==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n", CAUSE_FATAL},
        {"python3: can't open file '/x/t.py': [Errno 2] No such file or directory\n", CAUSE_FATAL},
        {"[rank0]:[E1128 18:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
         "operation timeout: x\n",
         CAUSE_PEER},
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (kind_of(lines[i].text) != lines[i].kind)
            printf("# %s", lines[i].text);
        CHECK_EQ(kind_of(lines[i].text), lines[i].kind);
    }
}

TEST(what_ends_no_program_comes_after_what_does)
{
    CHECK(read_output(FIRST FRAMES
                      "ValueError: label 7\n"
                      "Exception in thread Thread-1 (helper):\n" FIRST FRAMES
                      "ConnectionResetError: [Errno 104] reset\n"
                      "Exception ignored in: <function Keeper.__del__ at 0x7f>\n" FIRST FRAMES
                      "AssertionError: late\n"));
    CHECK_STR(found.line, "ValueError: label 7");
    CHECK(read_output("Exception in thread Thread-1 (helper):\n" FIRST FRAMES "OSError: gone\n"));
    CHECK_EQ(found.kind, CAUSE_ASIDE);
    CHECK_STR(found.line, "OSError: gone");
    CHECK(read_output("Error in sys.excepthook:\n" FIRST FRAMES "NameError: hook\n\n"
                      "Original exception was:\n" FIRST FRAMES "ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    /* one that was announced long before is not about this traceback */
    CHECK(read_output("Exception ignored in: <x>\n1\n2\n3\n4\n5\n" FIRST FRAMES "ValueError: 1\n"));
    CHECK_EQ(found.kind, CAUSE_RAISED);
}

#define PEER                                                                                       \
    "torch.distributed.DistBackendError: [../gloo] Connection closed by peer [10.0.0.1]:4711\n"

TEST(what_another_process_did_comes_after_its_own_words)
{
    CHECK(read_output(
        FIRST FRAMES
        "KeyError: 'a'\n" FIRST FRAMES
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.\n"));
    CHECK_STR(found.line, "KeyError: 'a'");
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" FIRST FRAMES PEER));
    CHECK_STR(found.line, "KeyError: 'a'");
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" HANDLING FIRST FRAMES PEER));
    CHECK_EQ(found.kind, CAUSE_RAISED);
    CHECK(strncmp(found.line, "KeyError: 'a'; then torch.distributed", 37) == 0);
    CHECK_EQ(kind_of(FIRST FRAMES PEER), CAUSE_PEER);
    CHECK(read_output(FIRST FRAMES
                      "_queue.Empty\n" CAUSE FIRST FRAMES
                      "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly\n"));
    CHECK_EQ(found.kind, CAUSE_WRAPPER);
    CHECK(read_output("ERROR: Unexpected bus error encountered in worker. This might be caused by "
                      "insufficient shared memory (shm).\n" FIRST FRAMES
                      "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. "
                      "exited unexpectedly\n"));
    CHECK(strncmp(found.line, "ERROR: Unexpected bus error", 27) == 0);
    CHECK(read_output(FIRST FRAMES "ValueError: Caught ValueError in DataLoader worker process 0.\n"
                                   "Original " FIRST FRAMES "ValueError: label 7\n\n"));
    CHECK_STR(found.line, "ValueError: label 7");
}

static void print_frames(int count)
{
    char line[96];

    for (int i = 0; i < count; i++) {
        (void)snprintf(line, sizeof line,
                       "frame #%d: <unknown function> + 0x%x (0x7f in libtorch.so)\n", i, i);
        print(1, line);
    }
}

TEST(an_abort_with_a_long_stack)
{
    begin();
    print(1, FIRST FRAMES
          "IndexError: index 91\nterminate called after throwing an instance of 'c10::Error'\n");
    print_frames(60);
    CHECK(best());
    CHECK_STR(found.line, "IndexError: index 91");
    end = (struct cause_end){.signal = SIGABRT};
    CHECK(best());
    CHECK_STR(found.line, "IndexError: index 91");
    begin();
    end = (struct cause_end){.signal = SIGABRT};
    print(1, "terminate called after throwing an instance of 'c10::DistBackendError'\n"
             "  what():  Watchdog caught collective operation timeout\n");
    print_frames(300);
    CHECK(best());
    CHECK_STR(found.line, "c10::DistBackendError: Watchdog caught collective operation timeout");
    CHECK_EQ(found.kind, CAUSE_PEER);
    begin();
    end = (struct cause_end){.signal = SIGABRT};
    print(1, FIRST FRAMES "ValueError: handled\n\n");
    for (int i = 0; i < 10; i++)
        print(1, "step\n");
    print(1,
          "terminate called after throwing an instance of 'std::out_of_range'\n  what():  at 7\n");
    CHECK(best());
    CHECK_STR(found.line, "std::out_of_range: at 7");
}

TEST(a_crash_that_faulthandler_shows)
{
    begin();
    end = (struct cause_end){.signal = SIGSEGV};
    print(1,
          "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
          "  File \"/opt/venv/lib/python3.11/site-packages/x.py\", line 9 in g\n"
          "  File \"/home/ada/train.py\", line 3 in f\n  File \"/home/ada/train.py\", line 8 in "
          "<module>\n\n"
          "Extension modules: numpy (total: 1)\n");
    CHECK(best());
    CHECK_STR(found.line,
              "Fatal Python error: Segmentation fault (\"/home/ada/train.py\", line 3 in f)");
    CHECK_EQ(found.kind, CAUSE_FATAL);
}

TEST(boxes_and_prefixes)
{
    CHECK(read_output("\xe2\x95\xad\xe2\x94\x80\xe2\x94\x80 Traceback (most recent call last) "
                      "\xe2\x94\x80\xe2\x94\x80\xe2\x95\xae\n"
                      "\xe2\x94\x82 /w/train.py:3 in <module>    \xe2\x94\x82\n"
                      "\xe2\x95\xb0\xe2\x94\x80\xe2\x94\x80\xe2\x95\xaf\nValueError: boxed\n"));
    CHECK_STR(found.line, "ValueError: boxed");
    CHECK_STR(found.text, "/w/train.py:3 in <module>\nValueError: boxed\n");
    CHECK(read_output("[default0]: " FIRST
                      "[default0]:   File \"a.py\", line 1\n[default0]: ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    CHECK(read_output(
        "[rank0]: [rank0]: " FIRST
        "[rank0]: [rank0]:   File \"a.py\", line 1\n[rank0]: [rank0]: ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    CHECK(read_output("12:00:01,123 E " FIRST
                      "12:00:01,124 E   File \"a.py\", line 1\n12:00:02,001 E ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    CHECK(read_output("2026-11-28 ERROR train " FIRST FRAMES "ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    CHECK(read_output(" 45%|##  | 45/100" FIRST FRAMES "ValueError: 1\n"));
    CHECK_STR(found.line, "ValueError: 1");
    CHECK(read_output("\x1b[31m" FIRST "\x1b[0m  File \x1b[35m\"a.py\"\x1b[0m, line "
                      "1\n\x1b[1;31mValueError\x1b[0m: \x1b[35m1\x1b[0m\n"));
    CHECK_STR(found.line, "ValueError: 1");
}

TEST(the_frame_of_the_user_stays)
{
    begin();
    print(1, FIRST "  File \"/w/train.py\", line 3, in <module>\n    main(x)\n");
    for (int i = 0; i < 60; i++)
        print(1, "  File \"/opt/venv/lib/python3.11/site-packages/torch/nn.py\", line 7, in call\n "
                 "   return f()\n");
    print(1, "RuntimeError: mat1 and mat2\n");
    CHECK(best());
    CHECK(strncmp(found.text, "  File \"/w/train.py\", line 3, in <module>\n    main(x)\n...\n",
                  58) == 0);
    CHECK_STR(found.text + strlen(found.text) - 28, "RuntimeError: mat1 and mat2\n");
}

TEST(output_on_the_other_stream_does_not_matter)
{
    begin();
    print(1, FIRST FRAMES "ValueError: 1\n");
    for (int i = 0; i < 5000; i++)
        print(0, "buffered line of stdout\n");
    CHECK(best());
    CHECK_STR(found.line, "ValueError: 1");
}

TEST(a_worker_that_still_runs_has_raised_what_it_printed_last)
{
    begin();
    end = (struct cause_end){.is_running = true};
    print(1, FIRST FRAMES "ValueError: 1\n\nending\n");
    print(0, "writing the last files\n");
    CHECK(best());
    CHECK_EQ(found.kind, CAUSE_RAISED);
    print(0, "step 1\nstep 2\nstep 3\n"); /* it had caught the exception */
    CHECK(!best() || found.kind < CAUSE_RAISED);
}

/* What ends a program is printed on stderr. */
TEST(a_traceback_on_stdout)
{
    begin();
    print(0, "sample:\n" FIRST FRAMES "ValueError: of the sample\n");
    CHECK(best());
    CHECK_STR(found.line, "ValueError: of the sample"); /* stderr may have been joined to it */
    print(0, "\nstep 0\n");
    print(1, "BLEU is 0 after warm-up\n");
    CHECK(best());
    CHECK_STR(found.line, "BLEU is 0 after warm-up");
}

TEST(processes_and_threads_of_a_program)
{
    CHECK(read_output("Process tokenizer-2:\n" FIRST FRAMES "KeyError: 'c'\n" FIRST FRAMES
                      "RuntimeError: 1 of 3 tokenizers failed\n"));
    CHECK_STR(found.line, "KeyError: 'c'");
    CHECK(read_output("Exception in thread loader:\n" FIRST FRAMES
                      "OSError: [Errno 5] Input/output error\n" FIRST FRAMES "_queue.Empty\n"));
    CHECK_STR(found.line, "OSError: [Errno 5] Input/output error");
    CHECK(read_output(FIRST FRAMES "_queue.Empty\n"));
    CHECK_STR(found.line, "_queue.Empty");
}

TEST(a_barrier_that_says_who_is_missing)
{
    CHECK_EQ(kind_of(FIRST FRAMES "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier "
                                  "in 6000 ms\n"),
             CAUSE_MISSING);
}

TEST(other_languages)
{
    CHECK(read_output("Exception in thread \"main\" java.lang.RuntimeException: can not start\n"
                      "\tat Train.main(Train.java:13)\nCaused by: java.io.IOException: no data\n"
                      "\tat Train.load(Train.java:4)\n"));
    CHECK_STR(found.line, "java.io.IOException: no data");
    CHECK_EQ(found.kind, CAUSE_FATAL);
    begin();
    print(
        1,
        "==48==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1\n    #0 0x2 in f\n\n");
    for (int i = 0; i < 100; i++)
        print(1, "Shadow byte legend\n");
    CHECK(best());
    CHECK_STR(found.line, "ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1");
    begin();
    print(1, "Error: ENOENT: no such file\n");
    for (int i = 0; i < 30; i++)
        print(1, "    at Object.<anonymous> (train.js:2:28)\n");
    print(1, "  code: 'ENOENT',\n}\n\nNode.js v20\n");
    CHECK(best());
    CHECK_STR(found.line, "Error: ENOENT: no such file");
}

TEST(the_last_lines)
{
    char tail[TAIL_BYTES_MAX];

    begin();
    print(1, "one\ntwo\n 1%|#\r 2%|##\r 3%|###\nthree\r\n\x1b[31mfour\x1b[0m\nfive\nsix \xff");
    causes_tail(&causes, 5, tail);
    CHECK_STR(tail, " 3%|###\nthree\nfour\nfive\nsix ?");
    print(0, "half");
    causes_tail(&causes, 2, tail);
    CHECK_STR(tail, "half\nsix ?");
    begin();
    for (int i = 0; i < 5000; i++)
        print(1, "0123456789");
    print(1, "\n");
    causes_tail(&causes, 5, tail);
    CHECK_EQ(strlen(tail), TAIL_BYTES_MAX - 1);
}

TEST(a_long_message)
{
    begin();
    print(1, FIRST FRAMES "RuntimeError: Error(s) in loading state_dict for Net:\n");
    for (int i = 0; i < 80; i++) {
        char line[64];

        (void)snprintf(line, sizeof line, "\tsize mismatch for layer%d.weight\n", i);
        print(1, line);
    }
    CHECK(best());
    CHECK_STR(found.line, "RuntimeError: Error(s) in loading state_dict for Net: size mismatch for "
                          "layer0.weight");
    CHECK(strstr(found.text, "layer0.weight") != NULL);
    CHECK_STR(found.text + strlen(found.text) - 22, "... and 64 more lines\n");
    begin();
    print(1, FIRST FRAMES "ValueError: ");
    for (int i = 0; i < 3000; i++)
        print(1, "0123456789");
    print(1, "\n");
    CHECK(best());
    CHECK(strncmp(found.line, "ValueError: 0123456789", 22) == 0);
    CHECK(strlen(found.text) < 1000);
}

static const struct cause_rank runs = {.is_running = true, .raised_us = INT64_MAX};
static const struct cause_rank runs_raised = {
    .is_running = true, .kind = CAUSE_RAISED, .raised_us = INT64_MAX};

static struct cause_rank failed(enum cause_kind kind, uint32_t order)
{
    return (struct cause_rank){
        .has_failed = true, .kind = kind, .order = order, .raised_us = INT64_MAX};
}

TEST(which_of_several_ranks_was_first)
{
    struct cause_rank ranks[3] = {runs, runs, runs};

    CHECK_EQ(cause_first(ranks, 3), -1);
    CHECK(!cause_may_become_clear(ranks, 3));
    ranks[2] = failed(CAUSE_PEER, 0);
    CHECK_EQ(cause_first(ranks, 3), 2);
    CHECK(cause_may_become_clear(ranks, 3));
    ranks[1] = failed(CAUSE_RAISED, 1); /* it ended later, and is the cause */
    CHECK_EQ(cause_first(ranks, 3), 1);
    CHECK(!cause_may_become_clear(ranks, 3));
    ranks[0] = failed(CAUSE_FATAL, 2);
    CHECK_EQ(cause_first(ranks, 3), 1);
    ranks[1] = runs_raised; /* it has not ended */
    ranks[0] = failed(CAUSE_WRAPPER, 1);
    CHECK_EQ(cause_first(ranks, 3), 1);
    ranks[0] = failed(CAUSE_NONE, 0); /* a signal: what others print later is because of it */
    CHECK_EQ(cause_first(ranks, 3), 0);
    ranks[0] = failed(CAUSE_MISSING, 3);
    ranks[1] = failed(CAUSE_STOPPED, 2);
    CHECK_EQ(cause_first(ranks, 3), 0); /* it says which rank did not come */
    ranks[0] = failed(CAUSE_PEER, 1);
    ranks[1] = failed(CAUSE_STOPPED, 2);
    CHECK_EQ(cause_first(ranks, 3), 2);
    CHECK(!cause_may_become_clear(ranks, 3));
    /* error files tell when */
    ranks[0] = failed(CAUSE_RAISED, 0);
    ranks[0].raised_us = 2000;
    ranks[2] = runs_raised;
    ranks[2].raised_us = 1000;
    CHECK_EQ(cause_first(ranks, 3), 2);
    ranks[2].raised_us = 3000;
    CHECK_EQ(cause_first(ranks, 3), 0);
}

TEST_MAIN
