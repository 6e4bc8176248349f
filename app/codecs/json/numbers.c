/* Reads a JSON array of numbers, or of nested arrays of numbers, into doubles. Called by compiled_numbers.py.

   Nothing is guessed: a text that is not such an array, whose lists differ in length, or a number that cannot be
   rounded for sure, is declined, and Python's way reads it and says what is wrong. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "needs 128-bit products, and the lowest byte first"
#endif

enum { MOST_DEPTH = 64, LEAST_POWER = -342, MOST_POWER = 308, DECLINED = -1 };

/* The 128 highest bits of the powers of five from LEAST_POWER to MOST_POWER; hatch_build.py computes them. */
static const struct {
  uint64_t high, low;
} FIVES[] = {
#include "powers_of_five.h"
};

/* Those that a double holds exactly. */
static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { MOST_TEN = 22, MOST_DIGITS = 19, MOST_EXPONENT = 1000000 };

#define WHOLE_BITS 53
#define TOP_BIT ((uint64_t)1 << 52)

/* The double nearest to digits * 10^power, ties to even; 0 if that is not a normal number, or cannot be told here.

   D. Lemire: Number parsing at a gigabyte per second. Software: Practice and Experience 51(8), 2021, algorithm 1 and
   section 8. */
static int nearest(uint64_t digits, int64_t power, double *found) {
  /* 1. Both are exact: one rounding. */
  if (!(digits >> WHOLE_BITS) && -MOST_TEN <= power && power <= MOST_TEN) {
    *found = power < 0 ? (double)digits / TENS[-power] : (double)digits * TENS[power];
    return 1;
  }
  if (!digits) {
    *found = 0;
    return 1;
  }
  if (power < LEAST_POWER || power > MOST_POWER) return 0;

  /* 2. The product of both, to 128 bits; the lower half of the power only where it may matter. */
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

  /* 3. Round to 53 bits: to even where the product is exactly half way. */
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

/* Appends the digits that come next, eight at most, from eight bytes that may be read. Returns how many these are.

   Without a branch: where numbers have different lengths, no processor can foresee which way one goes. */
static int take_eight(const char *at, uint64_t *digits) {
  static const uint64_t POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  uint64_t eight;
  memcpy(&eight, at, 8);
  uint64_t other = ((eight & 0xF0F0F0F0F0F0F0F0) | ((eight + 0x0606060606060606) & 0xF0F0F0F0F0F0F0F0) >> 4);
  other ^= 0x3333333333333333; /* not 0 in the first byte that is no digit; those behind it do not matter */
  int count = other ? __builtin_ctzll(other) >> 3 : 8, left = 8 * (8 - count);
  eight -= 0x3030303030303030;
  eight = eight << left / 2 << (left - left / 2);  /* zeros stand before fewer digits; a shift by 64 is none */
  eight = eight * 10 + (eight >> 8);               /* pairs of digits in every second byte */
  uint64_t firsts = (eight & 0x000000FF000000FF) * (100 + ((uint64_t)1000000 << 32));
  uint64_t seconds = ((eight >> 16) & 0x000000FF000000FF) * (1 + ((uint64_t)10000 << 32));
  *digits = *digits * POWERS[count] + (uint32_t)((firsts + seconds) >> 32);
  return count;
}

/* A number that is being read.

   digits: its first MOST_DIGITS digits, without leading zeros; count: how many it has; whole: no point, no exponent. */
struct number {
  uint64_t digits;
  int64_t count, power;
  int whole;
};

/* Reads the digits that follow, and lets go those that are too many. Returns where they end. */
static const char *take_digits(const char *at, const char *end, struct number *number) {
  while (end - at >= 8 && number->count + 8 <= MOST_DIGITS) {
    int count = take_eight(at, &number->digits);
    number->count += count;
    at += count;
    if (count < 8) return at;
  }
  const char *first = at, *last = at + (number->count < MOST_DIGITS ? MOST_DIGITS - number->count : 0);
  uint64_t digits = number->digits;
  for (; at < last && is_digit(*at); at++) digits = digits * 10 + (uint64_t)(*at - '0');
  while (is_digit(*at)) at++;
  number->digits = digits;
  number->count += at - first;
  return at;
}

/* Reads one number. Returns where it ends; NULL if it is declined. */
static const char *read_number(const char *at, const char *end, double *found, int *whole) {
  struct number number = {0, 0, 0, 1};
  int negative = *at == '-';
  at += negative;

  /* 1. Before the point: a zero stands alone. */
  if (*at == '0') {
    at++;
  } else {
    at = take_digits(at, end, &number);
    if (!number.count) return NULL;
  }

  /* 2. After it. */
  if (*at == '.') {
    const char *point = ++at;
    if (!number.count)
      while (*at == '0') at++;
    at = take_digits(at, end, &number);
    if (at == point) return NULL;
    number.power = point - at;
    number.whole = 0;
  }
  int64_t lost = number.count > MOST_DIGITS ? number.count - MOST_DIGITS : 0;
  number.power += lost;

  /* 3. The exponent. */
  if (*at == 'e' || *at == 'E') {
    at++;
    int down = *at == '-';
    at += down || *at == '+';
    if (!is_digit(*at)) return NULL;
    int64_t power = 0;
    for (; is_digit(*at); at++)
      if (power < MOST_EXPONENT) power = power * 10 + (*at - '0');
    if (power >= MOST_EXPONENT) return NULL; /* a million zeros before it may make it small again */
    number.power += down ? -power : power;
    number.whole = 0;
  }

  /* 4. With digits lost it lies between two numbers: it is known if both round alike. */
  double above;
  if (!nearest(number.digits, number.power, found)) return NULL;
  if (lost && (!nearest(number.digits + 1, number.power, &above) || above != *found)) return NULL;
  *whole &= number.whole && !(number.digits >> WHOLE_BITS) && !lost;
  if (negative && (number.digits || !number.whole)) *found = -*found; /* the whole number -0 is 0 */
  return at;
}

/* Reads the array in `text`, after which comes a NUL.

   found: gets the numbers, at most `room`; lengths: gets the length of the lists of each depth, of MOST_DEPTH at most;
   depth, whole: how deep it is; whether all are whole numbers that a double holds exactly.
   Returns how many numbers there are, or DECLINED. The number in its name changes with its arguments. */
int64_t ferry_read_numbers_1(const char *text, int64_t size, double *found, int64_t room, int64_t *lengths,
                           int32_t *depth, int32_t *whole) {
  const char *end = text + size, *at = past_space(text);
  int64_t counts[MOST_DEPTH];
  int level = 0, deepest = 0, all_whole = 1;
  int64_t numbers = 0;
  if (*at != '[') return DECLINED;
  for (;;) {
    /* 1. A list begins: the first number says how deep all are. */
    if (*at == '[') {
      if (level == MOST_DEPTH || (deepest && level == deepest)) return DECLINED;
      counts[level++] = 0;
      at = past_space(at + 1);
      continue;
    }
    if (!deepest) {
      deepest = level;
      for (int each = 0; each < level; each++) lengths[each] = 0;
    }

    /* 2. A number. */
    if (level != deepest || numbers == room) return DECLINED;
    at = read_number(at, end, found + numbers++, &all_whole);
    if (!at) return DECLINED;

    /* 3. Lists end, the first of each depth says how long the others are; then comes the next value. */
    for (;;) {
      at = past_space(at);
      counts[level - 1]++;
      if (*at == ',') {
        at = past_space(at + 1);
        break;
      }
      if (*at != ']') return DECLINED;
      level--;
      if (!lengths[level]) lengths[level] = counts[level];
      if (lengths[level] != counts[level]) return DECLINED;
      at = past_space(at + 1);
      if (!level) {
        *depth = deepest;
        *whole = all_whole;
        return at == end ? numbers : DECLINED;
      }
    }
  }
}
