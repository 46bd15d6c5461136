"""A hundred small tasks of programming, each with a program that is right and one that is nearly so."""

from __future__ import annotations

from typing import Any, NamedTuple


class Task(NamedTuple):
    question: str
    info: dict[str, Any]
    right: str
    wrong: str


def called(question: str, right: str, wrong: str, *calls: tuple[str, str]) -> Task:
    return Task(question, {"calls": [{"call": call, "result": result} for call, result in calls]}, right, wrong)


def fed(question: str, right: str, wrong: str, *tests: tuple[str, str]) -> Task:
    return Task(question, {"tests": [{"input": text, "output": output} for text, output in tests]}, right, wrong)


TASKS = [
    called(
        "Return the sum of the even numbers in a list.",
        ("def even_sum(numbers):\n    return sum(n for n in numbers if n % 2 == 0)"),
        ("def even_sum(numbers):\n    return sum(n for n in numbers if n % 2)"),
        ("even_sum([1, 2, 3, 4])", "6"),
        ("even_sum([])", "0"),
        ("even_sum([-2, 7])", "-2"),
    ),
    called(
        "Count the vowels of a text, whatever their case.",
        ("def vowels(text):\n    return sum(c in 'aeiou' for c in text.lower())"),
        ("def vowels(text):\n    return sum(c in 'aeiou' for c in text)"),
        ("vowels('Education')", "5"),
        ("vowels('AEIOU')", "5"),
        ("vowels('rhythm')", "0"),
    ),
    called(
        "Tell whether a text reads the same backwards, letters only, whatever their case.",
        (
            "def is_palindrome(text):\n"
            "    letters = [c.lower() for c in text if c.isalpha()]\n"
            "    return letters == letters[::-1]"
        ),
        ("def is_palindrome(text):\n    return text == text[::-1]"),
        ("is_palindrome('Never odd or even')", "True"),
        ("is_palindrome('abc')", "False"),
        ("is_palindrome('')", "True"),
    ),
    called(
        "Return the n-th Fibonacci number, where the first two are 0 and 1 and counting starts at 0.",
        ("def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
        ("def fibonacci(n):\n    a, b = 1, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
        ("fibonacci(0)", "0"),
        ("fibonacci(10)", "55"),
        ("fibonacci(50)", "12586269025"),
    ),
    called(
        "Return n factorial.",
        ("def factorial(n):\n    product = 1\n    for k in range(2, n + 1):\n        product *= k\n    return product"),
        ("def factorial(n):\n    product = 1\n    for k in range(2, n):\n        product *= k\n    return product"),
        ("factorial(0)", "1"),
        ("factorial(5)", "120"),
        ("factorial(20)", "2432902008176640000"),
    ),
    called(
        "Return the greatest common divisor of two positive numbers.",
        ("def common(a, b):\n    while b:\n        a, b = b, a % b\n    return a"),
        ("def common(a, b):\n    return min(a, b)"),
        ("common(12, 18)", "6"),
        ("common(7, 13)", "1"),
        ("common(100, 75)", "25"),
    ),
    called(
        "Return the least common multiple of two positive numbers.",
        ("def multiple(a, b):\n    from math import gcd\n    return a * b // gcd(a, b)"),
        ("def multiple(a, b):\n    return a * b"),
        ("multiple(4, 6)", "12"),
        ("multiple(7, 3)", "21"),
        ("multiple(10, 10)", "10"),
    ),
    called(
        "Tell whether a number is prime.",
        ("def is_prime(n):\n    return n > 1 and all(n % k for k in range(2, int(n ** 0.5) + 1))"),
        ("def is_prime(n):\n    return all(n % k for k in range(2, int(n ** 0.5) + 1))"),
        ("is_prime(1)", "False"),
        ("is_prime(2)", "True"),
        ("is_prime(91)", "False"),
        ("is_prime(97)", "True"),
    ),
    called(
        "List the primes below n.",
        ("def primes(n):\n    return [k for k in range(2, n) if all(k % d for d in range(2, int(k ** 0.5) + 1))]"),
        ("def primes(n):\n    return [k for k in range(2, n + 1) if all(k % d for d in range(2, int(k ** 0.5) + 1))]"),
        ("primes(13)", "[2, 3, 5, 7, 11]"),
        ("primes(2)", "[]"),
        ("primes(30)", "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]"),
    ),
    called(
        "Factor a number above 1 into primes, in ascending order.",
        (
            "def factors(n):\n"
            "    found, d = [], 2\n"
            "    while n > 1:\n"
            "        while n % d == 0:\n"
            "            found.append(d)\n"
            "            n //= d\n"
            "        d += 1\n"
            "    return found"
        ),
        ("def factors(n):\n    return [d for d in range(2, n + 1) if n % d == 0]"),
        ("factors(60)", "[2, 2, 3, 5]"),
        ("factors(97)", "[97]"),
        ("factors(1024)", "[2, 2, 2, 2, 2, 2, 2, 2, 2, 2]"),
    ),
    called(
        "Add the digits of a number that is not negative.",
        ("def digit_sum(n):\n    return sum(int(d) for d in str(n))"),
        ("def digit_sum(n):\n    return n % 9"),
        ("digit_sum(0)", "0"),
        ("digit_sum(999)", "27"),
        ("digit_sum(12345)", "15"),
    ),
    called(
        "Reverse the order of words in a sentence.",
        ("def reverse_words(sentence):\n    return ' '.join(sentence.split()[::-1])"),
        ("def reverse_words(sentence):\n    return sentence[::-1]"),
        ("reverse_words('one two three')", "'three two one'"),
        ("reverse_words('word')", "'word'"),
        ("reverse_words('a b')", "'b a'"),
    ),
    called(
        "Count how often each character of a text occurs.",
        ("def counts(text):\n    from collections import Counter\n    return Counter(text)"),
        ("def counts(text):\n    return {c: 1 for c in text}"),
        ("counts('banana')", "{'b': 1, 'a': 3, 'n': 2}"),
        ("counts('')", "{}"),
        ("counts('aab')", "{'a': 2, 'b': 1}"),
    ),
    called(
        "Return the second largest distinct number of a list.",
        ("def second(numbers):\n    return sorted(set(numbers))[-2]"),
        ("def second(numbers):\n    return sorted(numbers)[-2]"),
        ("second([1, 5, 3])", "3"),
        ("second([4, 4, 2])", "2"),
        ("second([-1, -2])", "-2"),
    ),
    called(
        "Remove duplicates from a list, and keep the order of first occurrences.",
        ("def unique(items):\n    return list(dict.fromkeys(items))"),
        ("def unique(items):\n    return sorted(set(items), reverse=True)"),
        ("unique([3, 1, 3, 2, 1])", "[3, 1, 2]"),
        ("unique(['b', 'a', 'b'])", "['b', 'a']"),
        ("unique([])", "[]"),
    ),
    called(
        "Flatten a list of lists by one level.",
        ("def flatten(lists):\n    return [item for items in lists for item in items]"),
        ("def flatten(lists):\n    return lists"),
        ("flatten([[1, 2], [3]])", "[1, 2, 3]"),
        ("flatten([[], [4]])", "[4]"),
        ("flatten([[[1]], [2]])", "[[1], 2]"),
    ),
    called(
        "Transpose a matrix given as a list of rows.",
        ("def transpose(rows):\n    return [list(column) for column in zip(*rows)]"),
        ("def transpose(rows):\n    return [list(row) for row in rows]"),
        ("transpose([[1, 2, 3], [4, 5, 6]])", "[[1, 4], [2, 5], [3, 6]]"),
        ("transpose([[1], [2]])", "[[1, 2]]"),
    ),
    called(
        "Rotate a list to the right by k places.",
        ("def rotate(items, k):\n    k %= len(items) or 1\n    return items[-k:] + items[:-k] if k else items"),
        ("def rotate(items, k):\n    return items[k:] + items[:k]"),
        ("rotate([1, 2, 3, 4], 1)", "[4, 1, 2, 3]"),
        ("rotate([1, 2, 3], 5)", "[2, 3, 1]"),
        ("rotate([], 2)", "[]"),
    ),
    called(
        "Merge two sorted lists into one.",
        ("def merge(a, b):\n    return sorted(a + b)"),
        ("def merge(a, b):\n    return a + b"),
        ("merge([1, 4], [2, 3])", "[1, 2, 3, 4]"),
        ("merge([], [1])", "[1]"),
        ("merge([5], [1, 9])", "[1, 5, 9]"),
    ),
    called(
        "Return the position of a number in a sorted list, or -1 if it is not there.",
        (
            "def position(numbers, wanted):\n"
            "    from bisect import bisect_left\n"
            "    at = bisect_left(numbers, wanted)\n"
            "    return at if at < len(numbers) and numbers[at] == wanted else -1"
        ),
        ("def position(numbers, wanted):\n    from bisect import bisect_left\n    return bisect_left(numbers, wanted)"),
        ("position([1, 3, 5], 3)", "1"),
        ("position([1, 3, 5], 4)", "-1"),
        ("position([], 1)", "-1"),
    ),
    called(
        "Return the mean of a list of numbers.",
        ("def mean(numbers):\n    return sum(numbers) / len(numbers)"),
        ("def mean(numbers):\n    return sum(numbers) // len(numbers)"),
        ("mean([1, 2])", "1.5"),
        ("mean([0.1, 0.2, 0.3])", "0.20000000000000004"),
        ("mean([5])", "5.0"),
    ),
    called(
        "Return the median of a list of numbers.",
        ("def median(numbers):\n    from statistics import median as middle\n    return middle(numbers)"),
        ("def median(numbers):\n    return sorted(numbers)[len(numbers) // 2]"),
        ("median([3, 1, 2])", "2"),
        ("median([4, 1, 3, 2])", "2.5"),
    ),
    called(
        "Return the most common item of a list; of several, the first in the list.",
        ("def mode(items):\n    return max(items, key=items.count)"),
        ("def mode(items):\n    return max(items)"),
        ("mode([1, 2, 2, 9])", "2"),
        ("mode(['b', 'a'])", "'b'"),
    ),
    called(
        "Return the largest sum of a run of neighbours in a list that is not empty.",
        (
            "def best_run(numbers):\n"
            "    best = here = numbers[0]\n"
            "    for n in numbers[1:]:\n"
            "        here = max(n, here + n)\n"
            "        best = max(best, here)\n"
            "    return best"
        ),
        ("def best_run(numbers):\n    return sum(n for n in numbers if n > 0)"),
        ("best_run([-2, 1, -3, 4, -1, 2, 1, -5, 4])", "6"),
        ("best_run([-3, -1])", "-1"),
        ("best_run([5])", "5"),
    ),
    called(
        "Return the two positions, ascending, of the numbers in a list that add up to a target.",
        (
            "def pair(numbers, target):\n"
            "    seen = {}\n"
            "    for at, n in enumerate(numbers):\n"
            "        if target - n in seen:\n"
            "            return (seen[target - n], at)\n"
            "        seen[n] = at"
        ),
        ("def pair(numbers, target):\n    return (0, 1)"),
        ("pair([2, 7, 11, 15], 26)", "(2, 3)"),
        ("pair([3, 3], 6)", "(0, 1)"),
    ),
    called(
        "Tell whether brackets of the kinds (), [] and {} in a text are balanced.",
        (
            "def balanced(text):\n"
            "    stack, closing = [], {')': '(', ']': '[', '}': '{'}\n"
            "    for c in text:\n"
            "        if c in '([{':\n"
            "            stack.append(c)\n"
            "        elif c in closing and (not stack or stack.pop() != closing[c]):\n"
            "            return False\n"
            "    return not stack"
        ),
        ("def balanced(text):\n    return all(text.count(a) == text.count(b) for a, b in ('()', '[]', '{}'))"),
        ("balanced('{[()]}')", "True"),
        ("balanced('([)]')", "False"),
        ("balanced('(')", "False"),
        ("balanced('')", "True"),
    ),
    called(
        "Write a number from 1 to 3999 in Roman numerals.",
        (
            "def roman(n):\n"
            "    text = ''\n"
            "    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)\n"
            "    for value, letters in zip(values, 'M CM D CD C XC L XL X IX V IV I'.split()):\n"
            "        while n >= value:\n"
            "            text += letters\n"
            "            n -= value\n"
            "    return text"
        ),
        (
            "def roman(n):\n"
            "    text = ''\n"
            "    for value, letter in zip((1000, 500, 100, 50, 10, 5, 1), 'MDCLXVI'):\n"
            "        text += letter * (n // value)\n"
            "        n %= value\n"
            "    return text"
        ),
        ("roman(4)", "'IV'"),
        ("roman(1994)", "'MCMXCIV'"),
        ("roman(3)", "'III'"),
    ),
    called(
        "Read a Roman numeral.",
        (
            "def from_roman(text):\n"
            "    values = dict(zip('IVXLCDM', (1, 5, 10, 50, 100, 500, 1000)))\n"
            "    total = 0\n"
            "    for at, c in enumerate(text):\n"
            "        smaller = at + 1 < len(text) and values[c] < values[text[at + 1]]\n"
            "        total += -values[c] if smaller else values[c]\n"
            "    return total"
        ),
        (
            "def from_roman(text):\n"
            "    values = dict(zip('IVXLCDM', (1, 5, 10, 50, 100, 500, 1000)))\n"
            "    return sum(values[c] for c in text)"
        ),
        ("from_roman('XIV')", "14"),
        ("from_roman('MCMXCIV')", "1994"),
        ("from_roman('III')", "3"),
    ),
    called(
        "Write a number that is not negative in binary, without prefix.",
        ("def binary(n):\n    return bin(n)[2:]"),
        ("def binary(n):\n    return bin(n)"),
        ("binary(0)", "'0'"),
        ("binary(10)", "'1010'"),
        ("binary(255)", "'11111111'"),
    ),
    called(
        "Count the ones in the binary form of a number.",
        ("def ones(n):\n    return bin(n).count('1')"),
        ("def ones(n):\n    return len(bin(n)) - 2"),
        ("ones(7)", "3"),
        ("ones(8)", "1"),
        ("ones(0)", "0"),
    ),
    called(
        "Shift each lower-case letter of a text by k in the alphabet; leave the rest.",
        (
            "def shift(text, k):\n"
            "    return ''.join(chr((ord(c) - 97 + k) % 26 + 97) if 'a' <= c <= 'z' else c for c in text)"
        ),
        ("def shift(text, k):\n    return ''.join(chr(ord(c) + k) for c in text)"),
        ("shift('xyz', 3)", "'abc'"),
        ("shift('a b!', 1)", "'b c!'"),
        ("shift('abc', -1)", "'zab'"),
    ),
    called(
        "Compress a text to runs, as in 'aaab' to 'a3b1'.",
        (
            "def runs(text):\n"
            "    from itertools import groupby\n"
            "    return ''.join(c + str(len(list(group))) for c, group in groupby(text))"
        ),
        ("def runs(text):\n    return ''.join(c + str(text.count(c)) for c in sorted(set(text)))"),
        ("runs('aaab')", "'a3b1'"),
        ("runs('aba')", "'a1b1a1'"),
        ("runs('')", "''"),
    ),
    called(
        "Expand runs, as in 'a3b1' to 'aaab'.",
        (
            "def expand(text):\n"
            "    import re\n"
            "    return ''.join(c * int(n) for c, n in re.findall(r'(\\D)(\\d+)', text))"
        ),
        (
            "def expand(text):\n"
            "    import re\n"
            "    return ''.join(c * int(n) for c, n in re.findall(r'(\\D)(\\d)', text))"
        ),
        ("expand('a3b1')", "'aaab'"),
        ("expand('x12')", "'xxxxxxxxxxxx'"),
        ("expand('')", "''"),
    ),
    called(
        "Tell whether two words are anagrams of each other.",
        ("def anagrams(a, b):\n    return sorted(a) == sorted(b)"),
        ("def anagrams(a, b):\n    return set(a) == set(b)"),
        ("anagrams('listen', 'silent')", "True"),
        ("anagrams('aab', 'abb')", "False"),
    ),
    called(
        "Group words by their length, in order of the words.",
        (
            "def by_length(words):\n"
            "    groups = {}\n"
            "    for word in words:\n"
            "        groups.setdefault(len(word), []).append(word)\n"
            "    return groups"
        ),
        ("def by_length(words):\n    return {len(word): [word] for word in words}"),
        ("by_length(['a', 'bb', 'c'])", "{1: ['a', 'c'], 2: ['bb']}"),
        ("by_length([])", "{}"),
    ),
    called(
        "Return the longest common prefix of a list of words.",
        ("def prefix(words):\n    import os\n    return os.path.commonprefix(words)"),
        ("def prefix(words):\n    return words[0]"),
        ("prefix(['flower', 'flow', 'flight'])", "'fl'"),
        ("prefix(['a', 'b'])", "''"),
        ("prefix(['same'])", "'same'"),
    ),
    called(
        "Return the length of the longest stretch of a text without a repeated character.",
        (
            "def longest_distinct(text):\n"
            "    start, best, last = 0, 0, {}\n"
            "    for at, c in enumerate(text):\n"
            "        start = max(start, last.get(c, -1) + 1)\n"
            "        last[c] = at\n"
            "        best = max(best, at - start + 1)\n"
            "    return best"
        ),
        ("def longest_distinct(text):\n    return len(set(text))"),
        ("longest_distinct('pwwkew')", "3"),
        ("longest_distinct('abba')", "2"),
        ("longest_distinct('')", "0"),
    ),
    called(
        "Capitalise the first letter of each word, and leave the others.",
        ("def titled(text):\n    return ' '.join(word[:1].upper() + word[1:] for word in text.split(' '))"),
        ("def titled(text):\n    return text.title()"),
        ('titled("it\'s late")', '"It\'s Late"'),
        ("titled('hello NASA')", "'Hello NASA'"),
    ),
    called(
        "Turn snake_case into camelCase.",
        (
            "def camel(name):\n"
            "    first, *rest = name.split('_')\n"
            "    return first + ''.join(word.capitalize() for word in rest)"
        ),
        ("def camel(name):\n    return ''.join(word.capitalize() for word in name.split('_'))"),
        ("camel('get_the_name')", "'getTheName'"),
        ("camel('one')", "'one'"),
    ),
    called(
        "Turn camelCase into snake_case.",
        ("def snake(name):\n    import re\n    return re.sub('([A-Z])', lambda m: '_' + m[1].lower(), name)"),
        ("def snake(name):\n    return name.lower()"),
        ("snake('getTheName')", "'get_the_name'"),
        ("snake('one')", "'one'"),
    ),
    called(
        ("Return the numbers from 1 to n, with Fizz for multiples of 3, Buzz of 5 and FizzBuzz of both, as texts."),
        (
            "def fizzbuzz(n):\n"
            "    return ['Fizz' * (k % 3 == 0) + 'Buzz' * (k % 5 == 0) or str(k) for k in range(1, n + 1)]"
        ),
        (
            "def fizzbuzz(n):\n"
            "    return ['Fizz' if k % 3 == 0 else 'Buzz' if k % 5 == 0 else str(k) for k in range(1, n + 1)]"
        ),
        (
            "fizzbuzz(15)",
            "['1', '2', 'Fizz', '4', 'Buzz', 'Fizz', '7', '8', 'Fizz', 'Buzz', '11', 'Fizz', '13', '14', 'FizzBuzz']",
        ),
        ("fizzbuzz(3)", "['1', '2', 'Fizz']"),
    ),
    called(
        "Tell whether a year is a leap year.",
        ("def leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)"),
        ("def leap(year):\n    return year % 4 == 0"),
        ("leap(2000)", "True"),
        ("leap(1900)", "False"),
        ("leap(2024)", "True"),
        ("leap(2023)", "False"),
    ),
    called(
        "Convert degrees Celsius to Fahrenheit.",
        ("def fahrenheit(c):\n    return c * 9 / 5 + 32"),
        ("def fahrenheit(c):\n    return (c + 32) * 9 / 5"),
        ("fahrenheit(0)", "32.0"),
        ("fahrenheit(100)", "212.0"),
        ("fahrenheit(-40)", "-40.0"),
        ("fahrenheit(36.6)", "97.88000000000001"),
    ),
    called(
        "Return the area of a triangle with the given sides.",
        ("def area(a, b, c):\n    s = (a + b + c) / 2\n    return (s * (s - a) * (s - b) * (s - c)) ** 0.5"),
        ("def area(a, b, c):\n    return a * b / 2"),
        ("area(3, 4, 5)", "6.0"),
        ("area(2, 2, 2)", "1.7320508075688772"),
    ),
    called(
        "Return the distance between two points of a plane.",
        ("def distance(p, q):\n    import math\n    return math.dist(p, q)"),
        ("def distance(p, q):\n    return abs(p[0] - q[0]) + abs(p[1] - q[1])"),
        ("distance((0, 0), (3, 4))", "5.0"),
        ("distance((1, 1), (2, 2))", "1.4142135623730951"),
    ),
    called(
        "Write seconds as hours, minutes and seconds: 3661 is '1:01:01'.",
        ("def clock(seconds):\n    return f'{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}'"),
        ("def clock(seconds):\n    return f'{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}'"),
        ("clock(3661)", "'1:01:01'"),
        ("clock(59)", "'0:00:59'"),
        ("clock(86399)", "'23:59:59'"),
    ),
    called(
        "Return the n-th row of Pascal's triangle, counting from 0.",
        ("def pascal(n):\n    from math import comb\n    return [comb(n, k) for k in range(n + 1)]"),
        ("def pascal(n):\n    from math import comb\n    return [comb(n + 1, k) for k in range(n + 2)]"),
        ("pascal(0)", "[1]"),
        ("pascal(4)", "[1, 4, 6, 4, 1]"),
        ("pascal(7)", "[1, 7, 21, 35, 35, 21, 7, 1]"),
    ),
    called(
        "Return the numbers of the Collatz sequence from n to 1.",
        (
            "def collatz(n):\n"
            "    found = [n]\n"
            "    while n != 1:\n"
            "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n"
            "        found.append(n)\n"
            "    return found"
        ),
        (
            "def collatz(n):\n"
            "    found = []\n"
            "    while n != 1:\n"
            "        found.append(n)\n"
            "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n"
            "    return found"
        ),
        ("collatz(6)", "[6, 3, 10, 5, 16, 8, 4, 2, 1]"),
        ("collatz(1)", "[1]"),
    ),
    called(
        "Tell whether a number equals the sum of its proper divisors.",
        ("def perfect(n):\n    return n > 1 and sum(d for d in range(1, n) if n % d == 0) == n"),
        ("def perfect(n):\n    return sum(d for d in range(1, n + 1) if n % d == 0) == n"),
        ("perfect(6)", "True"),
        ("perfect(28)", "True"),
        ("perfect(12)", "False"),
    ),
    called(
        "Return the integer part of the square root.",
        ("def root(n):\n    from math import isqrt\n    return isqrt(n)"),
        ("def root(n):\n    return round(n ** 0.5)"),
        ("root(8)", "2"),
        ("root(9)", "3"),
        ("root(10 ** 20)", "10000000000"),
    ),
    called(
        "Multiply two matrices given as lists of rows.",
        (
            "def product(a, b):\n"
            "    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]"
        ),
        ("def product(a, b):\n    return [[x * y for x, y in zip(row, other)] for row, other in zip(a, b)]"),
        ("product([[1, 2], [3, 4]], [[5, 6], [7, 8]])", "[[19, 22], [43, 50]]"),
        ("product([[1, 0]], [[2], [3]])", "[[2]]"),
    ),
    called(
        "Return the sum of a square matrix's main diagonal.",
        ("def trace(rows):\n    return sum(row[at] for at, row in enumerate(rows))"),
        ("def trace(rows):\n    return sum(row[-at - 1] for at, row in enumerate(rows))"),
        ("trace([[1, 2], [3, 5]])", "6"),
        ("trace([[7]])", "7"),
    ),
    called(
        "List a matrix's numbers in a spiral, clockwise from the top left.",
        (
            "def spiral(rows):\n"
            "    found = []\n"
            "    while rows:\n"
            "        found += rows[0]\n"
            "        rows = [list(row) for row in zip(*rows[1:])][::-1]\n"
            "    return found"
        ),
        ("def spiral(rows):\n    return [n for row in rows for n in row]"),
        ("spiral([[1, 2, 3], [4, 5, 6], [7, 8, 9]])", "[1, 2, 3, 6, 9, 8, 7, 4, 5]"),
        ("spiral([[1, 2], [3, 4]])", "[1, 2, 4, 3]"),
    ),
    called(
        "Return all subsets of a list's items, as tuples, smaller ones first.",
        (
            "def subsets(items):\n"
            "    from itertools import combinations\n"
            "    return [c for n in range(len(items) + 1) for c in combinations(items, n)]"
        ),
        (
            "def subsets(items):\n"
            "    from itertools import combinations\n"
            "    return [c for n in range(1, len(items) + 1) for c in combinations(items, n)]"
        ),
        ("subsets([1, 2])", "[(), (1,), (2,), (1, 2)]"),
        ("subsets([])", "[()]"),
    ),
    called(
        "Return the orders in which a text's letters can stand, each once, sorted.",
        (
            "def orders(text):\n"
            "    from itertools import permutations\n"
            "    return sorted({''.join(p) for p in permutations(text)})"
        ),
        (
            "def orders(text):\n"
            "    from itertools import permutations\n"
            "    return sorted(''.join(p) for p in permutations(text))"
        ),
        ("orders('aab')", "['aab', 'aba', 'baa']"),
        ("orders('abc')", "['abc', 'acb', 'bac', 'bca', 'cab', 'cba']"),
    ),
    called(
        "Return in how many ways n steps can be climbed by one or two at a time.",
        ("def climbs(n):\n    a, b = 1, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
        ("def climbs(n):\n    return 2 ** (n - 1)"),
        ("climbs(1)", "1"),
        ("climbs(3)", "3"),
        ("climbs(10)", "89"),
    ),
    called(
        "Return the fewest coins of the given values that make an amount, or -1 if none do.",
        (
            "def coins(values, amount):\n"
            "    best = [0] + [None] * amount\n"
            "    for n in range(1, amount + 1):\n"
            "        known = [best[n - v] for v in values if v <= n and best[n - v] is not None]\n"
            "        best[n] = min(known) + 1 if known else None\n"
            "    return -1 if best[amount] is None else best[amount]"
        ),
        (
            "def coins(values, amount):\n"
            "    count = 0\n"
            "    for v in sorted(values, reverse=True):\n"
            "        count += amount // v\n"
            "        amount %= v\n"
            "    return -1 if amount else count"
        ),
        ("coins([1, 3, 4], 6)", "2"),
        ("coins([2], 3)", "-1"),
        ("coins([5, 2], 11)", "4"),
    ),
    called(
        "Return the number of edits (insert, delete, replace) between two words.",
        (
            "def edits(a, b):\n"
            "    row = list(range(len(b) + 1))\n"
            "    for i, x in enumerate(a, 1):\n"
            "        before, row = row, [i]\n"
            "        for j, y in enumerate(b, 1):\n"
            "            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))\n"
            "    return row[-1]"
        ),
        ("def edits(a, b):\n    return sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))"),
        ("edits('kitten', 'sitting')", "3"),
        ("edits('abc', 'bc')", "1"),
        ("edits('', 'ab')", "2"),
    ),
    called(
        "Return the length of the longest common subsequence of two texts.",
        (
            "def common_length(a, b):\n"
            "    row = [0] * (len(b) + 1)\n"
            "    for x in a:\n"
            "        before = row[:]\n"
            "        for j, y in enumerate(b, 1):\n"
            "            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])\n"
            "    return row[-1]"
        ),
        ("def common_length(a, b):\n    return len(set(a) & set(b))"),
        ("common_length('abcde', 'ace')", "3"),
        ("common_length('abab', 'baba')", "3"),
        ("common_length('a', '')", "0"),
    ),
    called(
        "Return the length of the longest strictly increasing subsequence.",
        (
            "def increasing(numbers):\n"
            "    from bisect import bisect_left\n"
            "    ends = []\n"
            "    for n in numbers:\n"
            "        at = bisect_left(ends, n)\n"
            "        ends[at:at + 1] = [n]\n"
            "    return len(ends)"
        ),
        ("def increasing(numbers):\n    return sum(b > a for a, b in zip(numbers, numbers[1:])) + 1"),
        ("increasing([10, 9, 2, 5, 3, 7, 101, 18])", "4"),
        ("increasing([7, 7])", "1"),
        ("increasing([5, 6, 1, 2])", "2"),
    ),
    called(
        ("Return the best value of things (weight, value) that a bag of the given capacity can hold, each once."),
        (
            "def bag(things, capacity):\n"
            "    best = [0] * (capacity + 1)\n"
            "    for weight, value in things:\n"
            "        for room in range(capacity, weight - 1, -1):\n"
            "            best[room] = max(best[room], best[room - weight] + value)\n"
            "    return best[capacity]"
        ),
        (
            "def bag(things, capacity):\n"
            "    total = 0\n"
            "    for weight, value in sorted(things, key=lambda t: -t[1] / t[0]):\n"
            "        if weight <= capacity:\n"
            "            capacity -= weight\n"
            "            total += value\n"
            "    return total"
        ),
        ("bag([(6, 30), (3, 14), (4, 16), (2, 9)], 10)", "46"),
        ("bag([(5, 10)], 4)", "0"),
        ("bag([(3, 4), (2, 3), (2, 3)], 4)", "6"),
        ("bag([(3, 5), (2, 3), (2, 3)], 4)", "6"),
    ),
    called(
        ("Return the fewest steps from the first to the second vertex of a graph given as a dict of lists, or -1."),
        (
            "def steps(graph, start, end):\n"
            "    from collections import deque\n"
            "    queue, seen = deque([(start, 0)]), {start}\n"
            "    while queue:\n"
            "        at, far = queue.popleft()\n"
            "        if at == end:\n"
            "            return far\n"
            "        for near in graph.get(at, []):\n"
            "            if near not in seen:\n"
            "                seen.add(near)\n"
            "                queue.append((near, far + 1))\n"
            "    return -1"
        ),
        ("def steps(graph, start, end):\n    return 1 if end in graph.get(start, []) else -1"),
        ("steps({'a': ['b'], 'b': ['c']}, 'a', 'c')", "2"),
        ("steps({'a': []}, 'a', 'z')", "-1"),
        ("steps({}, 'x', 'x')", "0"),
    ),
    called(
        "Return the number of islands (cells of 1 joined by sides) of a grid.",
        (
            "def islands(grid):\n"
            "    left = {(r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell}\n"
            "    count = 0\n"
            "    while left:\n"
            "        count += 1\n"
            "        stack = [left.pop()]\n"
            "        while stack:\n"
            "            r, c = stack.pop()\n"
            "            for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):\n"
            "                if near in left:\n"
            "                    left.remove(near)\n"
            "                    stack.append(near)\n"
            "    return count"
        ),
        ("def islands(grid):\n    return sum(map(sum, grid))"),
        ("islands([[1, 1, 0], [0, 0, 1], [1, 0, 1]])", "3"),
        ("islands([[0]])", "0"),
    ),
    called(
        "Order tasks so that each comes after those it needs; of several, the alphabetically first.",
        (
            "def schedule(needs):\n"
            "    done = []\n"
            "    while len(done) < len(needs):\n"
            "        done.append(min(t for t in needs if t not in done and all(n in done for n in needs[t])))\n"
            "    return done"
        ),
        ("def schedule(needs):\n    return sorted(needs)"),
        ("schedule({'a': ['c'], 'b': [], 'c': ['b']})", "['b', 'c', 'a']"),
        ("schedule({'x': []})", "['x']"),
    ),
    called(
        "Evaluate an expression in postfix notation, with + - * and whole numbers.",
        (
            "def postfix(text):\n"
            "    stack = []\n"
            "    for token in text.split():\n"
            "        if token in '+-*':\n"
            "            b, a = stack.pop(), stack.pop()\n"
            "            stack.append(a + b if token == '+' else a - b if token == '-' else a * b)\n"
            "        else:\n"
            "            stack.append(int(token))\n"
            "    return stack[0]"
        ),
        (
            "def postfix(text):\n"
            "    stack = []\n"
            "    for token in text.split():\n"
            "        if token in '+-*':\n"
            "            a, b = stack.pop(), stack.pop()\n"
            "            stack.append(a + b if token == '+' else a - b if token == '-' else a * b)\n"
            "        else:\n"
            "            stack.append(int(token))\n"
            "    return stack[0]"
        ),
        ("postfix('3 4 + 2 *')", "14"),
        ("postfix('9 4 -')", "5"),
        ("postfix('5')", "5"),
    ),
    called(
        "Tell whether a text is a whole IPv4 address.",
        (
            "def is_address(text):\n"
            "    parts = text.split('.')\n"
            "    return len(parts) == 4 and all(p.isdigit() and str(int(p)) == p and int(p) < 256 for p in parts)"
        ),
        ("def is_address(text):\n    return len(text.split('.')) == 4"),
        ("is_address('192.168.0.1')", "True"),
        ("is_address('256.1.1.1')", "False"),
        ("is_address('1.2.3')", "False"),
        ("is_address('01.2.3.4')", "False"),
    ),
    called(
        "Count the words of a text, where words are separated by white space.",
        ("def words(text):\n    return len(text.split())"),
        ("def words(text):\n    return text.count(' ') + 1"),
        ("words('one  two')", "2"),
        ("words('')", "0"),
        ("words('a b c')", "3"),
    ),
    called(
        "Return the longest word of a sentence; of several, the first.",
        ("def longest(sentence):\n    return max(sentence.split(), key=len)"),
        ("def longest(sentence):\n    return max(sentence.split())"),
        ("longest('the quick brown fox')", "'quick'"),
        ("longest('zz aaa')", "'aaa'"),
    ),
    called(
        "Sort pairs by their second item, descending, then by their first.",
        ("def ranked(pairs):\n    return sorted(pairs, key=lambda p: (-p[1], p[0]))"),
        ("def ranked(pairs):\n    return sorted(pairs, key=lambda p: p[1], reverse=True)"),
        ("ranked([('b', 2), ('a', 2), ('c', 3)])", "[('c', 3), ('a', 2), ('b', 2)]"),
        ("ranked([])", "[]"),
    ),
    called(
        "Return what two sets have in common.",
        ("def both(a, b):\n    return a & b"),
        ("def both(a, b):\n    return a | b"),
        ("both({1, 2, 3}, {2, 3, 4})", "{2, 3}"),
        ("both({'x'}, set())", "set()"),
    ),
    called(
        "Return the items of the first list that the second lacks, in order.",
        ("def missing(a, b):\n    return [item for item in a if item not in b]"),
        ("def missing(a, b):\n    return [item for item in b if item not in a]"),
        ("missing([1, 2, 3], [2])", "[1, 3]"),
        ("missing([], [1])", "[]"),
    ),
    called(
        "Turn keys into values and values into keys.",
        ("def inverted(table):\n    return {value: key for key, value in table.items()}"),
        ("def inverted(table):\n    return dict(table)"),
        ("inverted({'a': 1, 'b': 2})", "{1: 'a', 2: 'b'}"),
        ("inverted({})", "{}"),
    ),
    called(
        "Merge two tables of numbers; add the values of common keys.",
        ("def added(a, b):\n    return {key: a.get(key, 0) + b.get(key, 0) for key in a | b}"),
        ("def added(a, b):\n    return {**a, **b}"),
        ("added({'x': 1}, {'x': 2, 'y': 3})", "{'x': 3, 'y': 3}"),
        ("added({}, {})", "{}"),
    ),
    called(
        "Split a list into pieces of n items; the last may be shorter.",
        ("def pieces(items, n):\n    return [items[at:at + n] for at in range(0, len(items), n)]"),
        ("def pieces(items, n):\n    return [items[at:at + n] for at in range(0, len(items) - n + 1, n)]"),
        ("pieces([1, 2, 3, 4, 5], 2)", "[[1, 2], [3, 4], [5]]"),
        ("pieces([], 3)", "[]"),
    ),
    called(
        "Return the running sums of a list.",
        ("def running(numbers):\n    from itertools import accumulate\n    return list(accumulate(numbers))"),
        ("def running(numbers):\n    return [sum(numbers)] * len(numbers)"),
        ("running([1, 2, 3])", "[1, 3, 6]"),
        ("running([])", "[]"),
        ("running([0.1, 0.2])", "[0.1, 0.30000000000000004]"),
    ),
    called(
        "Return the differences of neighbours in a list.",
        ("def differences(numbers):\n    return [b - a for a, b in zip(numbers, numbers[1:])]"),
        ("def differences(numbers):\n    return [a - b for a, b in zip(numbers, numbers[1:])]"),
        ("differences([1, 4, 9])", "[3, 5]"),
        ("differences([5])", "[]"),
    ),
    called(
        "Tell whether a list is sorted in ascending order; equal neighbours are allowed.",
        ("def is_sorted(numbers):\n    return all(a <= b for a, b in zip(numbers, numbers[1:]))"),
        ("def is_sorted(numbers):\n    return all(a < b for a, b in zip(numbers, numbers[1:]))"),
        ("is_sorted([1, 2, 2])", "True"),
        ("is_sorted([2, 1])", "False"),
        ("is_sorted([])", "True"),
    ),
    called(
        "Return the missing number of a list that has all but one of 0 to n.",
        ("def absent(numbers):\n    return sum(range(len(numbers) + 1)) - sum(numbers)"),
        ("def absent(numbers):\n    return max(numbers) + 1"),
        ("absent([0, 1, 3])", "2"),
        ("absent([0])", "1"),
        ("absent([1])", "0"),
    ),
    called(
        "Return the number that occurs once where all others occur twice.",
        ("def single(numbers):\n    found = 0\n    for n in numbers:\n        found ^= n\n    return found"),
        ("def single(numbers):\n    return numbers[-1]"),
        ("single([4, 1, 2, 1, 2])", "4"),
        ("single([7])", "7"),
    ),
    called(
        "Return how much water the bars of a histogram hold between them.",
        (
            "def water(heights):\n"
            "    return sum(min(max(heights[:at + 1]), max(heights[at:])) - h for at, h in enumerate(heights))"
        ),
        ("def water(heights):\n    return sum(max(heights) - h for h in heights)"),
        ("water([0, 1, 0, 2, 1, 0, 1, 3, 2, 1, 2, 1])", "6"),
        ("water([1, 2])", "0"),
    ),
    called(
        "Return the best profit of buying once and selling later, or 0.",
        (
            "def profit(prices):\n"
            "    best, low = 0, float('inf')\n"
            "    for price in prices:\n"
            "        low = min(low, price)\n"
            "        best = max(best, price - low)\n"
            "    return best"
        ),
        ("def profit(prices):\n    return max(prices) - min(prices)"),
        ("profit([7, 1, 5, 3, 6, 4])", "5"),
        ("profit([5, 4, 3])", "0"),
    ),
    called(
        "Move the zeros of a list to its end, and keep the order of the rest.",
        ("def zeros_last(numbers):\n    return [n for n in numbers if n] + [0] * numbers.count(0)"),
        ("def zeros_last(numbers):\n    return sorted(numbers, reverse=True)"),
        ("zeros_last([0, 1, 0, 3, 12])", "[1, 3, 12, 0, 0]"),
        ("zeros_last([0])", "[0]"),
    ),
    called(
        "Merge overlapping intervals, given as tuples, into sorted ones.",
        (
            "def merged(intervals):\n"
            "    found = []\n"
            "    for start, end in sorted(intervals):\n"
            "        if found and start <= found[-1][1]:\n"
            "            found[-1] = (found[-1][0], max(end, found[-1][1]))\n"
            "        else:\n"
            "            found.append((start, end))\n"
            "    return found"
        ),
        ("def merged(intervals):\n    return sorted(intervals)"),
        ("merged([(1, 3), (2, 6), (8, 10)])", "[(1, 6), (8, 10)]"),
        ("merged([(1, 10), (2, 3)])", "[(1, 10)]"),
    ),
    called(
        "Return the number of trailing zeros of n factorial.",
        ("def trailing(n):\n    count = 0\n    while n:\n        n //= 5\n        count += n\n    return count"),
        ("def trailing(n):\n    return n // 5"),
        ("trailing(4)", "0"),
        ("trailing(25)", "6"),
        ("trailing(100)", "24"),
    ),
    called(
        "Return a to the power of b, modulo m, for large b.",
        ("def power(a, b, m):\n    return pow(a, b, m)"),
        ("def power(a, b, m):\n    return a * b % m"),
        ("power(2, 10, 1000)", "24"),
        ("power(3, 10 ** 12, 7)", "4"),
    ),
    called(
        "Return the quotient and the remainder of two whole numbers.",
        ("def quotient(a, b):\n    return divmod(a, b)"),
        ("def quotient(a, b):\n    return [a // b, a % b]"),
        ("quotient(17, 5)", "(3, 2)"),
        ("quotient(4, 2)", "(2, 0)"),
    ),
    called(
        "Return the column title of a spreadsheet: 1 is A, 27 is AA.",
        (
            "def column(n):\n"
            "    title = ''\n"
            "    while n:\n"
            "        n, letter = divmod(n - 1, 26)\n"
            "        title = chr(65 + letter) + title\n"
            "    return title"
        ),
        (
            "def column(n):\n"
            "    title = ''\n"
            "    while n:\n"
            "        n, letter = divmod(n, 26)\n"
            "        title = chr(64 + letter) + title\n"
            "    return title"
        ),
        ("column(1)", "'A'"),
        ("column(26)", "'Z'"),
        ("column(28)", "'AB'"),
        ("column(703)", "'AAA'"),
    ),
    called(
        "Return the average of the numbers that a text mentions, or None if it mentions none.",
        (
            "def mentioned(text):\n"
            "    import re\n"
            "    found = [int(n) for n in re.findall(r'\\d+', text)]\n"
            "    return sum(found) / len(found) if found else None"
        ),
        (
            "def mentioned(text):\n"
            "    import re\n"
            "    found = [int(n) for n in re.findall(r'\\d', text)]\n"
            "    return sum(found) / len(found) if found else 0"
        ),
        ("mentioned('10 apples and 25 pears')", "17.5"),
        ("mentioned('none')", "None"),
    ),
    called(
        "Hide all but the last four characters of a text by asterisks.",
        ("def masked(text):\n    return '*' * (len(text) - 4) + text[-4:]"),
        ("def masked(text):\n    return '*' * len(text[:-4]) + '****'"),
        ("masked('12345678')", "'****5678'"),
        ("masked('123')", "'123'"),
    ),
    fed(
        "Read two whole numbers from one line, and print their sum.",
        ("a, b = map(int, input().split())\nprint(a + b)"),
        ("a, b = input().split()\nprint(a + b)"),
        ("2 3\n", "5\n"),
        ("-5 5\n", "0\n"),
    ),
    fed(
        "Read a count and then that many lines; print them in reverse order.",
        ("lines = [input() for _ in range(int(input()))]\nprint('\\n'.join(reversed(lines)))"),
        ("for _ in range(int(input())):\n    print(input())"),
        ("2\nfirst\nsecond\n", "second\nfirst\n"),
        ("3\na\nb\nc\n", "c\nb\na\n"),
    ),
    fed(
        "Read numbers up to a zero, and print the largest.",
        ("best = None\nwhile (n := int(input())) != 0:\n    best = n if best is None else max(best, n)\nprint(best)"),
        ("best = 0\nwhile (n := int(input())) != 0:\n    best = max(best, n)\nprint(best)"),
        ("3\n9\n2\n0\n", "9\n"),
        ("-4\n-7\n0\n", "-4\n"),
    ),
    fed(
        "Read all of the input, and print how many lines and words it has.",
        ("import sys\ntext = sys.stdin.read()\nprint(text.count('\\n'), len(text.split()))"),
        ("import sys\nprint(len(sys.stdin.read()))"),
        ("one two\nthree\n", "2 3\n"),
        ("\n\n", "2 0\n"),
    ),
    fed(
        "Read n, and print a triangle of n rows of asterisks.",
        ("for row in range(1, int(input()) + 1):\n    print('*' * row)"),
        ("for row in range(int(input())):\n    print('*' * row)"),
        ("3\n", "*\n**\n***\n"),
        ("1\n", "*\n"),
    ),
    fed(
        "Read a word, and print each letter with its count, in alphabetical order, one a line.",
        ("word = input()\nfor c in sorted(set(word)):\n    print(c, word.count(c))"),
        ("word = input()\nfor c in word:\n    print(c, word.count(c))"),
        ("banana\n", "a 3\nb 1\nn 2\n"),
        ("aa\n", "a 2\n"),
    ),
    fed(
        "Read n, and print its multiplication table up to 5, as '2 x 3 = 6'.",
        ("n = int(input())\nfor k in range(1, 6):\n    print(f'{n} x {k} = {n * k}')"),
        ("n = int(input())\nfor k in range(5):\n    print(f'{n} x {k} = {n * k}')"),
        ("2\n", "2 x 1 = 2\n2 x 2 = 4\n2 x 3 = 6\n2 x 4 = 8\n2 x 5 = 10\n"),
        ("7\n", "7 x 1 = 7\n7 x 2 = 14\n7 x 3 = 21\n7 x 4 = 28\n7 x 5 = 35\n"),
    ),
    fed(
        "Read lines 'name score', and print the name with the highest score.",
        ("import sys\nprint(max((line.split() for line in sys.stdin), key=lambda p: int(p[1]))[0])"),
        ("import sys\nprint(max((line.split() for line in sys.stdin), key=lambda p: p[1])[0])"),
        ("ann 9\nbob 10\n", "bob\n"),
        ("x 1\n", "x\n"),
    ),
    fed(
        "Read a sentence, and print it with each word reversed.",
        "print(' '.join(word[::-1] for word in input().split()))",
        "print(input()[::-1])",
        ("hello world\n", "olleh dlrow\n"),
        ("abc def\n", "cba fed\n"),
    ),
    fed(
        "Read a number of seconds, and print it as minutes and seconds, 'm:ss'.",
        ("n = int(input())\nprint(f'{n // 60}:{n % 60:02}')"),
        ("n = int(input())\nprint(f'{n // 60}:{n % 60}')"),
        ("65\n", "1:05\n"),
        ("600\n", "10:00\n"),
    ),
    fed(
        "Read two words, and print yes if the second is part of the first, else no.",
        ("whole = input()\nprint('yes' if input() in whole else 'no')"),
        ("whole = input()\nprint('yes' if whole in input() else 'no')"),
        ("banana\nnan\n", "yes\n"),
        ("abc\nac\n", "no\n"),
    ),
]
