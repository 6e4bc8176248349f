/* Enters requests with every pair of awkward counts: fold.c declines all that do not fit into the arrays, which lie on
   the heap with nothing behind them, and adds no counts that overflow. Compiled with fold.c and sanitizers, which end
   the program at the first wrong step. Prints how many requests were entered, and how many were declined. */

#include <stdio.h>
#include <stdlib.h>

#include "fold.c"

enum { ROWS = 10, SLOTS = 2, REQUESTS = 2, NODES = 3, INNER = 1 };

static const int64_t COUNTS[] = {INT64_MIN, INT64_MIN + 1, -2, -1, 0, 1, 2, 3, 4, (int64_t)1 << 32, INT64_MAX / 16 + 1,
                                 INT64_MAX / 8, INT64_MAX / 2, INT64_MAX / 2 + 1, INT64_MAX - 3, INT64_MAX - 2,
                                 INT64_MAX - 1, INT64_MAX};
enum { MANY = sizeof COUNTS / sizeof *COUNTS };

static int64_t *of(int64_t count, int64_t value) {
  int64_t *numbers = malloc((size_t)count * sizeof *numbers);
  for (int64_t at = 0; at < count; at++) numbers[at] = value;
  return numbers;
}

int main(void) {
  agenda all = {of(ROWS, 0), of(ROWS, 0), of(ROWS, 0), of(ROWS, 0), of(ROWS * SLOTS, 0), ROWS, SLOTS,
                of(REQUESTS, 0), REQUESTS};
  int64_t *children = of(INNER * SLOTS, -1), *allowed = of(1, SLOTS), *rows = of(NODES, 0);
  int64_t *told = of(2 * 3, 0), *roots = of(NODES, 0), *ready = of(INNER, 0), *work = of(NODES + INNER, 0);
  int64_t entered = 0, declined = 0;
  for (int64_t node = 0; node < NODES; node++) rows[node] = node + 1;
  for (int64_t first = 0; first < MANY * MANY * MANY; first++) {
    int64_t number = COUNTS[first / MANY / MANY], starts = COUNTS[first / MANY % MANY], inner = COUNTS[first % MANY];
    for (int64_t requests = 1; requests <= 2; requests++) { /* alone, and behind one that leaves one node */
      int64_t *asked = of(3 * requests, 0), *own = asked + 3 * (requests - 1);
      if (requests == 2) asked[1] = NODES - 1;
      own[0] = number, own[1] = starts, own[2] = inner;
      int64_t found = ferry_fold_enter_2(&all, requests, asked, children, NULL, allowed, 1, rows, NODES, INNER, told,
                                         roots, ready, work);
      if (found == 0) entered++;
      else declined++;
      free(asked);
    }
  }
  printf("%lld %lld\n", (long long)entered, (long long)declined);
  return 0;
}
