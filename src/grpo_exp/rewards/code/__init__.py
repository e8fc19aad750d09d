"""The reward for programs: unit tests in a sandbox.

Reasons, next to those of `grpo_exp.rewards.score`:

| slug | value | meaning |
|---|---|---|
| `passed` | 1.0 | every test passed |
| `wrong_output` | 0.0 | a test got another output, or an assertion does not hold |
| `runtime_error` | 0.0 | the program raised, exited with another code than 0, or was gone before its test was over |
| `timeout` | 0.0 | a test ran into its limit on wall or CPU time |
| `memory_limit` | 0.0 | the program ran out of memory, or was ended at the limit |
| `process_limit` | 0.0 | the program was ended at the limit on processes |
| `output_limit` | 0.0 | the program was ended at the limit on output |
| `syntax_error` | 0.0 | the program is not Python |
| `missing_function` | 0.0 | the program has no function of the name that is called |
| `no_code` | 0.0 | there is no fenced block after the reasoning, or only blocks of assertions |
| `cut_code` | 0.0 | the last fenced block is never closed |
| `too_long` | 0.0 | the program is longer than any honest one |
| `no_tests` | None | the tests are null or empty |
| `unreadable_tests` | None | the tests are not of the form that their mode asks for, or do not fit in a sandbox |

With `scoring=fraction` the value is the share of passed tests, and the reason that of the first one that failed.

How cheating is kept out
------------------------
A program can rewrite everything in its own process: builtins, `assert` by way of trace functions and bytecode, exit
hooks, the frames above it, every object that the garbage collector knows. So nothing that decides lies there. Neither
expected values nor tests nor secrets ever enter the process, file system or namespace in which a program runs:

- `stdin`: the program gets the input; its output is compared here, token by token.
- `call`: a server next to the program gets the name and the arguments; what comes back is plain data, compared here
  with exact types. An object that equals everything is not plain data and equals nothing.
- `assert`: the tests run in a second sandbox (`judge`), which has names of the program as stand-ins: a call sends the
  arguments to the first sandbox and brings plain data back. Both sides of `==` are compared by the judge's own
  interpreter. After each test and after the last one the judge reports with a secret of this run; an early exit, by
  whomever, is not a report, and a pass needs the last one.

What a program returns may be an object of one of its own classes. The judge holds a stand-in for it, and never lets it
decide a comparison with plain data: see `remote`.

A program can of course give whatever answer it likes on its own pipes. It knows no more about the right one than an
honest program does.
"""
