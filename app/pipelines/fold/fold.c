/* The work of agenda.py, forest.py, ready_nodes.py and fold_costs.py, in one pass over the nodes of a call or of the
   requests that arrive. compiled_fold.py calls it and holds the GIL meanwhile: it takes some 10 ns for each node.

   All numbers are int64. A number from outside is compared with the lengths of the arrays before anything is written,
   and before it is added to another number: counts near 2^63 are declined like other counts that are too large. Invalid
   trees are declined: forest.py names the fault. */

#include <stddef.h>
#include <stdint.h>

enum { DECLINED = -1 };

/* As in ready_nodes.py: a key is the number of a request, a node's distance from the deepest one, and its row. */
enum { ROW_BITS = 24, DEPTH_BITS = 18, REQUEST_SHIFT = ROW_BITS + DEPTH_BITS };
#define ROW_MASK (((int64_t)1 << ROW_BITS) - 1)
#define DEEPEST (((int64_t)1 << DEPTH_BITS) - 1)
#define MOST_NUMBER (INT64_MAX >> REQUEST_SHIFT)

/* As in fair_order.py. */
enum { SHARE_BITS = 6, AGE_BITS = 30 };
#define NODE ((int64_t)1 << (SHARE_BITS + AGE_BITS))

/* As in agenda.py. */
enum { IN_CALL = -1, DONE = -2, SEVERAL = -1 };

/* The arrays of an agenda: by row of the arena (children have `slots` numbers a row), and by request. */
typedef struct {
  int64_t *key, *operation, *missing, *parent, *children;
  int64_t rows, slots;
  int64_t *left, *times, *ages;
  int64_t requests;
} agenda;

/* Inner nodes while their tree is checked: parents (-1: none) and depths (-1: not known yet). */
typedef struct {
  int64_t *parent, *depth;
} forest;

/* Notes the parent of each node. Returns whether all children exist, and no node has two parents. */
static int find_parents(int64_t starts, int64_t inner, int64_t slots, const int64_t *children, int64_t *parent) {
  int64_t nodes = starts + inner;
  for (int64_t node = 0; node < nodes; node++) parent[node] = -1;
  for (int64_t node = 0; node < inner; node++) {
    for (int64_t slot = 0; slot < slots; slot++) {
      int64_t child = children[node * slots + slot];
      if (child == -1) continue;
      if (child < 0 || child >= nodes || parent[child] != -1) return 0;
      parent[child] = node;
    }
  }
  return 1;
}

/* Notes the depth of each inner node; a node is passed twice at most. Returns the number of levels, or DECLINED if a
   node is its own descendant. `parent`: of inner nodes. */
static int64_t find_depths(int64_t inner, const int64_t *parent, int64_t *depth) {
  enum { ON_THE_WAY = -2 };
  int64_t levels = 0;
  for (int64_t node = 0; node < inner; node++) depth[node] = -1;
  for (int64_t node = 0; node < inner; node++) {
    int64_t up = node, below = 0;
    for (; up != -1 && depth[up] == -1; up = parent[up], below++) depth[up] = ON_THE_WAY;
    if (up != -1 && depth[up] == ON_THE_WAY) return DECLINED;
    int64_t known = up == -1 ? 0 : depth[up] + 1;
    if (known + below > levels) levels = known + below;
    for (up = node; below > 0; up = parent[up]) depth[up] = known + --below;
  }
  return levels;
}

/* Checks the trees of requests, and adds them to the agenda; all of them, or none.

   asked: [count, 3] the number of each request, and of its start nodes and inner nodes.
   children: [inner nodes of all, slots]; types: [inner nodes of all] their operations, or NULL.
   allowed: [operations] the slots of each operation.
   rows: [nodes of all] of the arena; nodes, inner_nodes: the numbers of all nodes and of all inner nodes.
   told: [count, 3] gets for each request the number of levels, of roots, and of ready nodes.
   roots: [nodes of all] gets the rows of roots; ready: [inner nodes of all] gets the keys of ready nodes. Those of a
       request stand from the place of its first node on.
   work: [nodes and inner nodes of all].
   Returns 0, or DECLINED: nothing was written to the agenda. */
int64_t ferry_fold_enter_1(agenda *all, int64_t count, const int64_t *asked, const int64_t *children,
                           const int64_t *types, const int64_t *allowed, int64_t operations, const int64_t *rows,
                           int64_t nodes, int64_t inner_nodes, int64_t *told, int64_t *roots, int64_t *ready,
                           int64_t *work) {
  int64_t slots = all->slots, before = 0, inner_before = 0;

  /* 1. Each forest by itself. */
  for (int64_t each = 0; each < count; each++) {
    int64_t number = asked[3 * each], starts = asked[3 * each + 1], inner = asked[3 * each + 2];
    if (number < 0 || number >= all->requests || number > MOST_NUMBER) return DECLINED;
    if (starts < 0 || starts > nodes - before) return DECLINED;
    if (inner < 0 || inner > nodes - before - starts || inner > inner_nodes - inner_before) return DECLINED;
    const int64_t *own = children + inner_before * slots;
    forest found = {work + before + inner_before, work + before + inner_before + starts + inner};
    for (int64_t node = 0; node < starts + inner; node++) {
      int64_t row = rows[before + node];
      if (row <= 0 || row >= all->rows) return DECLINED;
    }
    for (int64_t node = 0; types && node < inner; node++) {
      int64_t type = types[inner_before + node];
      if (type < 0 || type >= operations || allowed[type] < 0) return DECLINED;
      for (int64_t slot = allowed[type]; slot < slots; slot++) {
        if (own[node * slots + slot] != -1) return DECLINED;
      }
    }
    if (!find_parents(starts, inner, slots, own, found.parent)) return DECLINED;
    told[3 * each] = find_depths(inner, found.parent + starts, found.depth);
    if (told[3 * each] == DECLINED) return DECLINED;
    before += starts + inner;
    inner_before += inner;
  }

  /* 2. What the agenda keeps of their nodes. */
  before = inner_before = 0;
  for (int64_t each = 0; each < count; each++) {
    int64_t number = asked[3 * each], starts = asked[3 * each + 1], inner = asked[3 * each + 2];
    const int64_t *own = children + inner_before * slots, *row_of = rows + before;
    forest found = {work + before + inner_before, work + before + inner_before + starts + inner};
    int64_t root_count = 0, ready_count = 0;
    for (int64_t node = 0; node < starts + inner; node++) {
      if (found.parent[node] == -1) roots[before + root_count++] = row_of[node];
    }
    for (int64_t node = 0; node < inner; node++) {
      int64_t row = row_of[starts + node], missing = 0, up = found.parent[starts + node], depth = found.depth[node];
      for (int64_t slot = 0; slot < slots; slot++) {
        int64_t child = own[node * slots + slot];
        missing += child >= starts;
        all->children[row * slots + slot] = child == -1 ? 0 : row_of[child];
      }
      all->key[row] = (number << REQUEST_SHIFT) + ((DEEPEST - (depth < DEEPEST ? depth : DEEPEST)) << ROW_BITS) + row;
      all->missing[row] = missing;
      all->parent[row] = up == -1 ? 0 : row_of[starts + up];
      all->operation[row] = types ? types[inner_before + node] : 0;
      if (!missing) ready[inner_before + ready_count++] = all->key[row];
    }
    all->left[number] = inner;
    told[3 * each + 1] = root_count;
    told[3 * each + 2] = ready_count;
    before += starts + inner;
    inner_before += inner;
  }
  return 0;
}

/* Exchanges numbers until the one at `place` is the one that stands there when they are sorted: Hoare's quickselect.

   Pivots by chance (Marsaglia's xorshift): those in the middle took quadratic time for two equal trees. */
static int64_t select_number(int64_t *numbers, int64_t count, int64_t place) {
  uint64_t chance = 88172645463325252;
  int64_t first = 0, last = count - 1;
  while (first < last) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    int64_t pivot = numbers[first + (int64_t)(chance % (uint64_t)(last - first + 1))], low = first, high = last;
    while (low <= high) {
      while (numbers[low] < pivot) low++;
      while (numbers[high] > pivot) high--;
      if (low <= high) {
        int64_t other = numbers[low];
        numbers[low++] = numbers[high];
        numbers[high--] = other;
      }
    }
    if (place <= high) last = high;
    else if (place >= low) first = low;
    else break;
  }
  return numbers[place];
}

/* The distance of a request's next node from the common time; unused shares are lost. */
static int64_t ahead(const agenda *all, int64_t request, int64_t now) {
  int64_t time = all->times[request] > now ? all->times[request] : now;
  return ((time - now) << AGE_BITS) + all->ages[request];
}

/* Takes `count` of the `size` keys of a pool, whose requests are charged for them.

   pool: [size] sorted; now: the common time.
   chosen: [size] gets the taken keys, then the keys that are left.
   work: [size].
   Returns the distance of the last taken node, or DECLINED: a key is not of this agenda. */
int64_t ferry_fold_choose_1(agenda *all, const int64_t *pool, int64_t size, int64_t count, int64_t now, int64_t *chosen,
                            int64_t *work) {
  enum { NOBODY = -1 - (1 << (63 - REQUEST_SHIFT)) }; /* what no key can have */
  int64_t request = NOBODY, place = 0, taken = 0, left = count;
  if (count < 1 || count > size) return DECLINED;
  for (int64_t at = 0; at < size; at++, place += NODE) {
    if (pool[at] >> REQUEST_SHIFT != request) {
      request = pool[at] >> REQUEST_SHIFT;
      if (request < 0 || request >= all->requests) return DECLINED;
      place = ahead(all, request, now);
    }
    work[at] = place;
  }
  int64_t last = select_number(work, size, count - 1);

  request = NOBODY;
  for (int64_t at = 0; at < size; at++, place += NODE) {
    if (pool[at] >> REQUEST_SHIFT != request) {
      request = pool[at] >> REQUEST_SHIFT;
      place = ahead(all, request, now);
      if (all->times[request] < now) all->times[request] = now;
    }
    if (place <= last && taken < count) {
      chosen[taken++] = pool[at];
      all->times[request] += (int64_t)1 << SHARE_BITS;
    } else if (left < size) {
      chosen[left++] = pool[at];
    }
  }
  return last;
}

/* Puts nodes with these keys into a call.

   taken: [2 + slots, count] gets their requests, their rows, and by slot the rows of their children.
   Returns 0, or DECLINED: a key is not of this agenda. */
int64_t ferry_fold_take_1(agenda *all, const int64_t *keys, int64_t count, int64_t *taken) {
  for (int64_t at = 0; at < count; at++) {
    if (keys[at] < 0 || (keys[at] & ROW_MASK) >= all->rows) return DECLINED;
  }
  for (int64_t at = 0; at < count; at++) {
    int64_t row = keys[at] & ROW_MASK;
    taken[at] = keys[at] >> REQUEST_SHIFT;
    taken[count + at] = row;
    all->missing[row] = IN_CALL;
    for (int64_t slot = 0; slot < all->slots; slot++) {
      taken[(2 + slot) * count + at] = all->children[row * all->slots + slot];
    }
  }
  return 0;
}

/* Ends the nodes with these rows, whose states are written.

   ready: [1 + 2 * count] gets the number of requests that become complete, the keys of nodes that become ready, and,
       from 1 + count on, the numbers of the complete requests.
   Returns how many nodes become ready, or DECLINED: a row is not of this agenda, or a node has several parents. */
int64_t ferry_fold_done_1(agenda *all, const int64_t *rows, int64_t count, int64_t *ready) {
  int64_t now_ready = 0, complete = 0;
  for (int64_t at = 0; at < count; at++) {
    int64_t row = rows[at];
    if (row <= 0 || row >= all->rows || all->parent[row] == SEVERAL) return DECLINED;
    int64_t request = all->key[row] >> REQUEST_SHIFT;
    if (request < 0 || request >= all->requests) return DECLINED;
  }
  for (int64_t at = 0; at < count; at++) {
    int64_t row = rows[at], request = all->key[row] >> REQUEST_SHIFT, up = all->parent[row];
    all->missing[row] = DONE;
    if (--all->missing[up] == 0) ready[1 + now_ready++] = all->key[up];
    if (--all->left[request] == 0) ready[1 + count + complete++] = request;
  }
  ready[0] = complete;
  return now_ready;
}

/* The costs of requests, by their numbers: as in fold_costs.py. `nodes` is all 0 between calls. */
typedef struct {
  double *entered_s, *begun_s, *seconds;
  int64_t *largest, *nodes;
  int64_t requests;
} fold_costs;

/* Charges the requests of a call, given once for each node.

   seconds, rows: of the call; share_s: the share of a node in the time that passed; least_s: no request's next call
       stands before this time.
   Returns 0, or DECLINED: a number is not of a request. */
int64_t ferry_fold_charge_1(fold_costs *all, const int64_t *requests, int64_t count, double seconds, int64_t rows,
                            double share_s, double least_s) {
  for (int64_t at = 0; at < count; at++) {
    if (requests[at] < 0 || requests[at] >= all->requests) return DECLINED;
  }
  for (int64_t at = 0; at < count; at++) all->nodes[requests[at]]++;
  for (int64_t at = 0; at < count; at++) {
    int64_t own = requests[at], nodes = all->nodes[own];
    if (!nodes) continue;
    double entered_s = all->entered_s[own] > all->begun_s[own] ? all->entered_s[own] : all->begun_s[own];
    entered_s += share_s * (double)nodes;
    all->entered_s[own] = entered_s > least_s ? entered_s : least_s;
    all->seconds[own] += seconds;
    if (all->largest[own] < rows) all->largest[own] = rows;
    all->nodes[own] = 0;
  }
  return 0;
}
