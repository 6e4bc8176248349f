/* The work of agenda.py and forest.py, in one pass over the nodes of a call or of the requests that arrive.
   compiled_fold.py calls it and holds the GIL meanwhile: it takes some 10 ns for each node.

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

/* As in agenda.py. */
enum { DONE = -2, SEVERAL = -1 };

/* The arrays of an agenda: by row of the arena (children have `slots` numbers a row), and by request. */
typedef struct {
  int64_t *key, *operation, *missing, *parent, *children;
  int64_t rows, slots;
  int64_t *left;
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
int64_t ferry_fold_enter_2(agenda *all, int64_t count, const int64_t *asked, const int64_t *children,
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

/* Ends the nodes with these rows, whose states are written.

   ready: [1 + 2 * count] gets the number of requests that become complete, the keys of nodes that become ready, and,
       from 1 + count on, the numbers of the complete requests.
   Returns how many nodes become ready, or DECLINED: a row is not of this agenda, or a node has several parents. */
int64_t ferry_fold_done_2(agenda *all, const int64_t *rows, int64_t count, int64_t *ready) {
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
