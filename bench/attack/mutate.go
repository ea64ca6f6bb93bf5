package main

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutator makes hostile variants of good inputs. The same seed makes the same ones.
type mutator struct {
	*rand.Rand
	words []string // of the format: keys, values, numbers at the edges
}

// edges are numbers and texts that decoders get wrong.
var edges = []string{
	"0", "-0", "-1", "1", "255", "256", "65535", "65536", "2147483647", "2147483648", "-2147483649", "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
	"-9223372036854775808", "18446744073709551616", "1e308", "1e309", "-1e309", "1e-309", "4.9e-324", "0.1", "1e9", "1e-9", "NaN", "Infinity", "-inf", "0x10", "1_000", "07", "1.", ".5", "+1",
	"true", "false", "null", `""`, "[]", "{}", "[[[[]]]]", `"\u0000"`, `"\ud800"`, `"é"`, "\xff\xfe", "\x00", "\n", "\r\n", "\t", " ", "%s", "../../x", "~", "!!binary", "&a", "*a", "- ", ": ", "#",
}

// mutate changes b in one to four places. Most results stay near the size of b; some
// grow to many times that, up to most bytes.
func (m *mutator) mutate(b []byte, most int) []byte {
	b = slices.Clone(b)
	if m.IntN(2) == 0 {
		// Near to good: most that goes wrong deep inside needs to be let in first.
		for range 1 + m.IntN(2) {
			b = m.otherNumber(b)
		}
		return b
	}
	for range 1 + m.IntN(4) {
		b = m.once(b)
	}
	if m.IntN(40) == 0 {
		b = m.grow(b, most)
	}
	if len(b) > most {
		b = b[:most]
	}
	return b
}

func (m *mutator) once(b []byte) []byte {
	if len(b) == 0 {
		return []byte(m.word())
	}
	at := m.IntN(len(b))
	end := min(len(b), at+1+m.IntN(1+m.IntN(64)))
	switch m.IntN(12) {
	case 0:
		b[at] ^= 1 << m.IntN(8)
	case 1:
		b[at] = []byte{0, 1, 127, 128, 255, '"', '{', '[', ',', '-', '\\', '9'}[m.IntN(12)]
	case 2:
		b = slices.Delete(b, at, end)
	case 3:
		b = slices.Insert(b, at, b[at:end]...)
	case 4:
		b = b[:at]
	case 5, 6:
		b = slices.Insert(b, at, []byte(m.word())...)
	case 7, 8, 9:
		b = m.replaceToken(b, at)
	case 10:
		other := m.IntN(len(b))
		b = slices.Insert(b, at, slices.Clone(b[other:min(len(b), other+m.IntN(200)+1)])...)
	case 11:
		junk := make([]byte, 1+m.IntN(32))
		for i := range junk {
			junk[i] = byte(m.Uint32())
		}
		b = slices.Insert(b, at, junk...)
	}
	return b
}

func (m *mutator) word() string {
	if len(m.words) > 0 && m.IntN(2) == 0 {
		return m.words[m.IntN(len(m.words))]
	}
	return edges[m.IntN(len(edges))]
}

// number finds numbers.
var number = regexp.MustCompile(`\d+(?:\.\d*)?|\.\d+`)

// otherNumber puts another number in the place of the first one behind a random place.
func (m *mutator) otherNumber(b []byte) []byte {
	from := m.IntN(len(b) + 1)
	at := number.FindIndex(b[from:])
	if at == nil {
		from, at = 0, number.FindIndex(b)
	}
	if at == nil {
		return m.once(b)
	}
	at[0], at[1] = at[0]+from, at[1]+from
	n, _ := strconv.ParseFloat(string(b[at[0]:at[1]]), 64) // infinite if it is too large
	n = []float64{0, n + 1, n - 1, -n, n * 2, n / 2, n * 10, n * 1e3, n * 1e6, n / 1e3, n * 1e9, 1, 2, 7}[m.IntN(14)]
	return slices.Replace(b, at[0], at[1], strconv.AppendFloat(nil, n, 'f', -1, 64)...)
}

// extremes are numbers at the ends of what a figure may be.
var extremes = []string{
	"0", "-1", "5e-324", "1e-300", "1e-9", "65537", "1e9", "1e15", "1e300",
	"1000000000", "1000000000000000", "9223372036854775807",
}

// extreme puts such a number in the place of one figure of a good document, or of two,
// or doubles a list of it. Each field has the same chance, however many figures it has.
func (m *mutator) extreme(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + m.IntN(2) {
		if m.IntN(10) > 0 || !m.doubleList(&b) {
			b = m.extremeFigure(b)
		}
	}
	return b
}

// figure finds numbers, also before a unit as in "20s", and the keys before them.
var figure = regexp.MustCompile(`[A-Za-z_][\w.-]*|"[0-9a-f]{64}"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?`)

func (m *mutator) extremeFigure(b []byte) []byte {
	var keys []string
	fields := map[string][][]int{}
	key := ""
	for _, at := range figure.FindAllIndex(b, -1) {
		switch c := b[at[0]]; {
		case c == '"':
		case c != '-' && (c < '0' || c > '9'):
			if rest := bytes.TrimLeft(b[at[1]:], `"`); len(rest) > 0 && rest[0] == ':' {
				key = string(b[at[0]:at[1]])
			}
		default:
			if fields[key] == nil {
				keys = append(keys, key)
			}
			fields[key] = append(fields[key], at)
		}
	}
	if len(keys) == 0 {
		return m.once(b)
	}
	list := fields[keys[m.IntN(len(keys))]]
	at := list[m.IntN(len(list))]
	return slices.Replace(b, at[0], at[1], []byte(extremes[m.IntN(len(extremes))])...)
}

// doubleList repeats what a list of JSON or of YAML in brackets holds; without a list it returns false.
func (m *mutator) doubleList(b *[]byte) bool {
	var opened []int
	var lists [][2]int
	for i, c := range *b {
		switch {
		case c == '[':
			opened = append(opened, i+1)
		case c == ']' && len(opened) > 0:
			if from := opened[len(opened)-1]; i > from {
				lists = append(lists, [2]int{from, i})
			}
			opened = opened[:len(opened)-1]
		}
	}
	if len(lists) == 0 {
		return false
	}
	l := lists[m.IntN(len(lists))]
	items := append([]byte{','}, (*b)[l[0]:l[1]]...)
	*b = slices.Insert(*b, l[1], items...)
	return true
}

// replaceToken puts a word in the place of the number, name or text at a place.
func (m *mutator) replaceToken(b []byte, at int) []byte {
	inside := func(c byte) bool { return c >= 0x80 || strings.IndexByte("{}[]:,\"' \n\r\t", c) < 0 }
	from, to := at, at
	for from > 0 && inside(b[from-1]) {
		from--
	}
	for to < len(b) && inside(b[to]) {
		to++
	}
	return slices.Replace(b, from, to, []byte(m.word())...)
}

// grow repeats a part of b, most often between two commas or lines, so that what
// looks like a list becomes a long one.
func (m *mutator) grow(b []byte, most int) []byte {
	if len(b) == 0 {
		return b
	}
	from := m.IntN(len(b))
	to := min(len(b), from+1+m.IntN(120))
	if m.IntN(3) > 0 {
		sep := []byte{',', '\n', '}', ']'}[m.IntN(4)]
		if i := bytes.IndexByte(b[from:], sep); i >= 0 {
			from += i
			if j := bytes.IndexByte(b[from+1:], sep); j >= 0 {
				to = from + 1 + j
			}
		}
	}
	to = max(to, from+1)
	size := most >> m.IntN(10)
	n := max((size-len(b))/(to-from), 1)
	return slices.Insert(b, to, bytes.Repeat(b[from:to], n)...)
}
