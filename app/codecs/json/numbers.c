/* Reads a JSON array of numbers, or of nested arrays of numbers, into doubles. Called by compiled_numbers.py.

   Nothing is guessed: a text that is not such an array, whose lists differ in length, or a number that cannot be
   rounded for sure, is declined, and Python's way reads it and says what is wrong.

   No processor can foresee how long the next number is, so nothing branches on it: `find_borders` finds the characters
   that are no digits, 64 at a time, and `read_common` takes a number's digits from between them all at once. What has
   more digits, or is no number, is left to `read_any`, a character at a time. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "needs 128-bit products, and the lowest byte first"
#endif

#define LIKELY(condition) __builtin_expect(condition, 1)
#define INLINE static inline __attribute__((always_inline))

enum { MOST_DEPTH = 64, LEAST_POWER = -342, MOST_POWER = 308, DECLINED = -1 };

/* The 128 highest bits of the powers of five from LEAST_POWER to MOST_POWER; hatch_build.py computes them. */
static const struct {
  uint64_t high, low;
} FIVES[] = {
#include "powers_of_five.h"
};

/* A double holds EXACT_DIGITS, a uint64_t MOST_DIGITS, whatever they are. */
enum { EXACT_DIGITS = 15, MOST_DIGITS = 19, MOST_EXPONENT = 1000000 };

static const double TENS[EXACT_DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                              1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

#define WHOLE_BITS 53
#define TOP_BIT ((uint64_t)1 << 52)

/* The double nearest to digits * 10^power, ties to even; 0 if that is not a normal number, or cannot be told here.

   D. Lemire: Number parsing at a gigabyte per second. Software: Practice and Experience 51(8), 2021, algorithm 1 and
   section 8. */
INLINE int nearest(uint64_t digits, int64_t power, double *found) {
  *found = 0;
  if (!digits) return 1;
  if (power < LEAST_POWER || power > MOST_POWER) return 0;

  /* 1. The product of both, to 128 bits; the lower half of the power only where it may matter. */
  int zeros = __builtin_clzll(digits);
  digits <<= zeros;
  unsigned __int128 product = (unsigned __int128)digits * FIVES[power - LEAST_POWER].high;
  uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
  if ((high & 0x1FF) == 0x1FF) {
    uint64_t more = (uint64_t)(((unsigned __int128)digits * FIVES[power - LEAST_POWER].low) >> 64);
    low += more;
    high += low < more;
  }
  if (low == UINT64_MAX && (power < -27 || power > 55)) return 0;

  /* 2. Round to 53 bits: to even where the product is exactly half way. */
  int upper = (int)(high >> 63), shift = upper + 9;
  uint64_t mantissa = high >> shift;
  int64_t exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023; /* 217706 / 2^16: 1 + log2(5) */
  if (low <= 1 && -4 <= power && power <= 23 && (mantissa & 3) == 1 && mantissa << shift == high) mantissa--;
  mantissa = (mantissa + (mantissa & 1)) >> 1;
  if (mantissa >> WHOLE_BITS) {
    mantissa = TOP_BIT;
    exponent++;
  }
  if (exponent <= 0 || exponent >= 0x7FF) return 0;

  uint64_t bits = (mantissa & (TOP_BIT - 1)) | (uint64_t)exponent << 52;
  memcpy(found, &bits, sizeof bits);
  return 1;
}

static int is_digit(char each) { return (unsigned char)(each - '0') < 10; }

static const char *past_space(const char *at) {
  while (*at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
  return at;
}

/* Reads the exponent, if there is one, and adds it to `power`. Returns where it ends, NULL if it is declined. */
static const char *past_exponent(const char *at, int64_t *power) {
  if (*at != 'e' && *at != 'E') return at;
  at++;
  int down = *at == '-';
  at += down || *at == '+';
  if (!is_digit(*at)) return NULL;
  int64_t exponent = 0;
  for (; is_digit(*at); at++)
    if (exponent < MOST_EXPONENT) exponent = exponent * 10 + (*at - '0');
  if (exponent >= MOST_EXPONENT) return NULL; /* a million zeros before it may make it small again */
  *power += down ? -exponent : exponent;
  return at;
}

/* A number that was read. end: where it ends, NULL if it is declined; whole: it has neither point nor exponent, and a
   double holds it exactly. */
struct number {
  const char *end;
  double value;
  int whole;
};

static const double SIGNS[] = {1, -1};

/* --- digits between borders --- */

/* A border is a character that is no digit. `bits` has one for each byte from `from` on, 1 for a border, and all those
   behind the end of the text are. Numbers may be read by them from `from` to `span` bytes behind it. */
enum { PART = 4096, COMMON_BYTES = 32, COMMON_DIGITS = 24 };
struct borders {
  const char *text, *end, *from, *until;
  size_t span;
  unsigned char bits[PART / 8 + 8];
};

static uint64_t load(const void *at) {
  uint64_t eight;
  memcpy(&eight, at, 8);
  return eight;
}

/* The number of eight digits, given as bytes from 0 to 9, the first one lowest. */
static uint64_t of_eight(uint64_t eight) {
  eight = eight * 10 + (eight >> 8); /* pairs of digits in every second byte */
  uint64_t firsts = (eight & 0x000000FF000000FF) * (100 + ((uint64_t)1000000 << 32));
  uint64_t seconds = ((eight >> 16) & 0x000000FF000000FF) * (1 + ((uint64_t)10000 << 32));
  return (firsts + seconds) >> 32;
}

/* What to keep of the last digits: the low halves of as many bytes as the index says, at the end of those loaded. */
static const unsigned char KEPT[2 * COMMON_DIGITS] = {[COMMON_DIGITS... 2 * COMMON_DIGITS - 1] = 0x0F};
#define KEPT_OF(count, bytes) (KEPT + COMMON_DIGITS - (bytes) + (count))

/* Of a number that ends at `end`: eight of its digits, those up to `skipped` before its last. Zeros stand before them.

   fraction: how many stand behind the point, or all if there is none; count: how many it has. The point is left out by
   moving those before it by a byte. */
static uint64_t eight_before(const char *end, uint64_t skipped, uint64_t fraction, uint64_t count) {
  uint64_t behind = load(KEPT_OF(fraction, skipped + 8)), before = load(KEPT_OF(count, skipped + 8)) ^ behind;
  const char *at = end - skipped - 8;
  return of_eight((load(at) & behind) | (load(at - 1) & before));
}

/* GCC and clang have these on every processor. Measured: SSE2's own instructions would be 10 % faster. */
typedef unsigned char bytes __attribute__((vector_size(16)));
typedef uint16_t pairs __attribute__((vector_size(16)));
typedef uint32_t fours __attribute__((vector_size(16)));
typedef uint64_t halves __attribute__((vector_size(16)));

INLINE bytes load_16(const void *at) {
  bytes found;
  memcpy(&found, at, 16);
  return found;
}

/* A bit for each byte, the first one lowest. */
static uint64_t borders_of_16(const char *at) {
  const bytes bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  halves found = (halves)((bytes)(load_16(at) - '0' > 9) & bits);
  const uint64_t sum = 0x0101010101010101; /* the highest byte of a product with it is the sum of all bytes */
  return found[0] * sum >> 56 | found[1] * sum >> 56 << 8;
}

static uint64_t borders_of_64(const char *at) {
  return borders_of_16(at) | borders_of_16(at + 16) << 16 | borders_of_16(at + 32) << 32 | borders_of_16(at + 48) << 48;
}

/* As `eight_before`: the number of its last 16 digits. */
INLINE uint64_t last_16(const char *end, uint64_t fraction, uint64_t count) {
  bytes behind = load_16(KEPT_OF(fraction, 16)), before = load_16(KEPT_OF(count, 16)) ^ behind;
  bytes digits = (load_16(end - 16) & behind) | (load_16(end - 17) & before);
  const pairs hundreds = {100, 1, 100, 1, 100, 1, 100, 1};
  fours two = (fours)(((pairs)digits * (10 << 8 | 1) >> 8) * hundreds); /* the first of two pairs a hundredfold */
  halves four = (halves)((two & 0xFFFF) + (two >> 16));
  const uint64_t joined = (uint64_t)10000 << 32 | 1;
  return (four[0] * joined >> 32) * 100000000 + (four[1] * joined >> 32);
}

/* Finds those of the part that begins at `at`; 0 if numbers there cannot be read by them. */
static __attribute__((noinline)) int find_borders(struct borders *borders, const char *at) {
  if (at - borders->text <= COMMON_DIGITS) return 0; /* what stands before a number is loaded with it */
  if (borders->until == borders->end) return 1;
  borders->from = at;
  unsigned char *bits = borders->bits;
  for (; bits < borders->bits + PART / 8 && at < borders->end; bits += 8, at += 64) {
    char rest[64] = {0};
    const char *whole = at;
    if (borders->end - at < 64) whole = memcpy(rest, at, (size_t)(borders->end - at));
    uint64_t found = borders_of_64(whole);
    memcpy(bits, &found, 8);
  }
  memset(bits, 0xFF, 8);
  borders->until = at < borders->end ? at : borders->end;
  borders->span = (size_t)(borders->until - borders->from) - (at < borders->end ? COMMON_BYTES : 0);
  return 1;
}

/* How many digits a number may have before its point, by the first. */
static const unsigned char MOST_BEFORE[256] = {['0'] = 1, ['1' ... '9'] = COMMON_DIGITS};

/* Reads a number of at most COMMON_DIGITS digits. */
INLINE struct number read_common(const char *at, const struct borders *borders) {
  const struct number declined = {NULL, 0, 0};

  /* 1. Where its digits are. */
  size_t offset = (size_t)(at - borders->from);
  uint64_t next = load(borders->bits + offset / 8) >> offset % 8 | (uint64_t)3 << 62; /* no border is farther away */
  uint64_t sign = next & 1;
  if ((*at == '-') != sign) return declined;
  next ^= sign;
  uint64_t point = (uint64_t)__builtin_ctzll(next), before = point - sign, behind = 0, length = point;
  uint64_t count = before, fraction = before;
  const char *first = at + sign;
  if (before - 1 >= MOST_BEFORE[(unsigned char)*first]) return declined; /* so it ends at a border that was found */
  if (at[point] == '.') {
    length = (uint64_t)__builtin_ctzll(next & (next - 1));
    fraction = behind = length - point - 1;
    if (!behind) return declined;
    count += behind;
  } else if (sign & (*first == '0')) {
    return declined; /* the whole number -0 is 0 */
  }
  const char *end = at + length;

  /* 2. Their number, if they are few. */
  double value;
  if (LIKELY(count <= EXACT_DIGITS && (*end | 0x20) != 'e')) {
    value = (double)(int64_t)last_16(end, fraction, count) / TENS[behind];
    return (struct number){end, value * SIGNS[sign], !behind};
  }

  /* 3. More of them, or an exponent. */
  if (count > COMMON_DIGITS) return declined;
  uint64_t high = eight_before(end, 16, fraction, count);
  if (high >= 1000) return declined; /* they are more than MOST_DIGITS */
  uint64_t digits = high * 10000000000000000 + last_16(end, fraction, count);
  int64_t power = -(int64_t)behind;
  const char *past = past_exponent(end, &power);
  if (!past || !nearest(digits, power, &value)) return declined;
  return (struct number){past, value * SIGNS[sign], !behind && past == end && !(digits >> WHOLE_BITS)};
}

/* --- digits one by one --- */

/* Reads digits. Returns where they end; the first MOST_DIGITS of a number, of which `count` were read, are added. */
static const char *past_digits(const char *at, uint64_t *digits, int64_t *count) {
  const char *first = at, *last = at + (*count < MOST_DIGITS ? MOST_DIGITS - *count : 0);
  uint64_t read = *digits;
  for (; at < last && is_digit(*at); at++) read = read * 10 + (uint64_t)(*at - '0');
  while (is_digit(*at)) at++;
  *digits = read;
  *count += at - first;
  return at;
}

/* Reads any number. */
static __attribute__((noinline)) struct number read_any(const char *at) {
  const struct number declined = {NULL, 0, 0};
  uint64_t digits = 0; /* the first MOST_DIGITS, without leading zeros */
  int64_t count = 0, power = 0;
  int negative = *at == '-';
  at += negative;

  /* 1. Before the point: a zero stands alone. */
  if (*at == '0') {
    at++;
  } else {
    at = past_digits(at, &digits, &count);
    if (!count) return declined;
  }

  /* 2. After it. */
  const char *before = at;
  if (*at == '.') {
    const char *point = ++at;
    if (!count)
      while (*at == '0') at++;
    at = past_digits(at, &digits, &count);
    if (at == point) return declined;
    power = point - at;
  }
  int64_t lost = count > MOST_DIGITS ? count - MOST_DIGITS : 0;
  power += lost;
  at = past_exponent(at, &power);
  int whole = at == before;

  /* 3. With digits lost it lies between two numbers: it is known if both round alike. */
  double value, above;
  if (!at || !nearest(digits, power, &value)) return declined;
  if (lost && (!nearest(digits + 1, power, &above) || above != value)) return declined;
  if (negative && (digits || !whole)) value = -value; /* the whole number -0 is 0 */
  return (struct number){at, value, whole && !(digits >> WHOLE_BITS) && !lost};
}

/* --- arrays --- */

INLINE struct number read_number(const char *at, struct borders *borders) {
  struct number number = {NULL, 0, 0};
  if (LIKELY((size_t)(at - borders->from) <= borders->span) || find_borders(borders, at))
    number = read_common(at, borders);
  return LIKELY(number.end != NULL) ? number : read_any(at);
}

/* Reads the array in `text`, after which comes a NUL.

   found: gets the numbers, at most `room`; lengths: gets the length of the lists of each depth, of MOST_DEPTH at most;
   depth, whole: how deep it is; whether all are whole numbers that a double holds exactly.
   Returns how many numbers there are, or DECLINED. The number in its name changes with its arguments. */
int64_t ferry_read_numbers_1(const char *text, int64_t size, double *found, int64_t room, int64_t *lengths,
                           int32_t *depth, int32_t *whole) {
  const char *end = text + size, *at = past_space(text);
  struct borders borders = {.text = text, .end = end, .from = end + 1, .until = text, .span = 0}; /* of no part yet */
  int64_t counts[MOST_DEPTH];
  int level = 0, deepest = 0, all_whole = 1;
  double *next = found;
  if (*at != '[') return DECLINED;
  for (;;) {
    /* 1. Lists begin: the first number says how deep all are. */
    for (; *at == '['; at = past_space(at + 1)) {
      if (level == MOST_DEPTH || (deepest && level == deepest)) return DECLINED;
      counts[level++] = 0;
    }
    if (!deepest) {
      deepest = level;
      for (int each = 0; each < level; each++) lengths[each] = 0;
    }
    if (level != deepest) return DECLINED;

    /* 2. Numbers, to the end of their list. */
    const double *first = next;
    for (;;) {
      if (next == found + room) return DECLINED;
      struct number number = read_number(at, &borders);
      if (!number.end) return DECLINED;
      *next++ = number.value;
      all_whole &= number.whole;
      at = past_space(number.end);
      if (!LIKELY(*at == ',')) break;
      at = past_space(at + 1);
    }
    counts[level - 1] = next - first;

    /* 3. Lists end, the first of each depth says how long the others are; then comes the next value. */
    for (;;) {
      if (*at != ']') return DECLINED;
      level--;
      if (!lengths[level]) lengths[level] = counts[level];
      if (lengths[level] != counts[level]) return DECLINED;
      at = past_space(at + 1);
      if (!level) {
        *depth = deepest;
        *whole = all_whole;
        return at == end ? next - found : DECLINED;
      }
      counts[level - 1]++;
      if (*at == ',') {
        at = past_space(at + 1);
        break;
      }
    }
  }
}
