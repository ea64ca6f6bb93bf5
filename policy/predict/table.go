package predict

import (
	"math/rand/v2"

	"inferplan/formats/seeded"
)

// Options say how a table predicts.
type Options struct {
	// Least is how many samples a row must have before it counts; 0: 3.
	Least int32
	// LastOnly leaves prefixes out: a row is of the last token alone.
	LastOnly bool
	// Sampled draws the next token by its share, as DyOrc does, from a stream of
	// Seed. Otherwise the most likely token is taken, the smaller number of two.
	Sampled bool
	Seed    uint64
	// Sure ends a prediction at the first token that has a smaller chance.
	Sure float64
	// Rows bounds the rows of prefixes; 0: 65,536. Further prefixes back off.
	Rows int
}

// Table counts which token follows. It is not safe for use by several
// goroutines.
type Table struct {
	opt    Options
	tokens tokens
	rows   []row
	edges  []edge
	apps   []app
	roots  map[[2]int32]int32 // row by application and feature
	lasts  map[[2]int32]int32 // row by application and last token
	rng    *rand.Rand
}

// row counts what followed a prefix or a token.
type row struct {
	total int32
	first int32 // edge; -1: none
	depth int32 // of the prefix; -1: of a last token
}

// edge is a token that followed a row.
type edge struct {
	token int32
	count int32
	row   int32 // of the longer prefix; -1: there is none
	next  int32 // edge of the same row
}

// app keeps how often each way of predicting was right about the next token.
type app struct {
	asked          int32
	plain, feature int32
}

// NoFeature is the feature of a request of which nothing is known.
const NoFeature int32 = -1

// New makes an empty table.
func New(opt Options) *Table {
	if opt.Least == 0 {
		opt.Least = 3
	}
	if opt.Rows == 0 {
		opt.Rows = 1 << 16
	}
	t := &Table{opt: opt, tokens: newTokens(), roots: map[[2]int32]int32{}, lasts: map[[2]int32]int32{}}
	if opt.Sampled {
		t.rng = seeded.New(opt.Seed, "predict")
	}
	return t
}

// Number is the number of a token, which Token gives back. Inputs are the
// caller's.
func (t *Table) Number(service int32, work int64, inputs []int32) int32 {
	return t.tokens.number(service, work, inputs)
}

// Token is the token of a number that Number gave.
func (t *Table) Token(number int32) *Token { return &t.tokens.list[number] }

// Cursor is where a request is in the table.
type Cursor struct {
	app, feature int32
	rows         [2]int32 // of the prefix, without and with the feature; -1: not counted
	last         int32    // token
}

// Begin is where a request of an application starts.
func (t *Table) Begin(application, feature int32) Cursor {
	c := Cursor{app: application, feature: feature, rows: [2]int32{-1, -1}, last: -1}
	if r, ok := t.roots[[2]int32{application, NoFeature}]; ok {
		c.rows[0] = r
	}
	if feature != NoFeature {
		if r, ok := t.roots[[2]int32{application, feature}]; ok {
			c.rows[1] = r
		}
	}
	return c
}

// Advance moves a cursor along a token.
func (t *Table) Advance(c *Cursor, token int32) {
	for i, r := range c.rows {
		if r < 0 {
			continue
		}
		c.rows[i] = -1
		if e := t.find(r, token); e >= 0 {
			c.rows[i] = t.edges[e].row
		}
	}
	c.last = token
}

// find is the edge of a row along a token; -1: none.
func (t *Table) find(row, token int32) int32 {
	for e := t.rows[row].first; e >= 0; e = t.edges[e].next {
		if t.edges[e].token == token {
			return e
		}
	}
	return -1
}

// Learn counts a request that has ended: its tokens in order, of which the first
// ones were known when it came.
func (t *Table) Learn(application, feature int32, path []int32, known int) {
	for int(application) >= len(t.apps) {
		t.apps = append(t.apps, app{})
	}
	if feature != NoFeature {
		t.score(application, feature, path, known)
	}
	t.count(application, NoFeature, path, known)
	if feature != NoFeature {
		t.count(application, feature, path, known)
	}
	for i := known; i <= len(path) && i > 0; i++ {
		t.bump(t.lastRow(application, path[i-1]), tokenAt(path, i))
	}
}

// tokenAt is the token at a place in a path, End behind it.
func tokenAt(path []int32, i int) int32 {
	if i < len(path) {
		return path[i]
	}
	return End
}

// score notes how often either row would have been right, before they learn.
func (t *Table) score(application, feature int32, path []int32, known int) {
	a := &t.apps[application]
	c := t.Begin(application, feature)
	for i := 0; i <= len(path); i++ {
		token := tokenAt(path, i)
		if i >= known {
			a.asked++
			if t.likely(t.plainRow(&c)) == token {
				a.plain++
			}
			if t.likely(t.featureRow(&c)) == token {
				a.feature++
			}
		}
		if i < len(path) {
			t.Advance(&c, token)
		}
	}
	if a.asked > 1<<20 { // what was long ago counts less
		a.asked, a.plain, a.feature = a.asked/2, a.plain/2, a.feature/2
	}
}

// count adds a path to the rows of its prefixes.
func (t *Table) count(application, feature int32, path []int32, known int) {
	if t.opt.LastOnly {
		return
	}
	key := [2]int32{application, feature}
	r, ok := t.roots[key]
	if !ok {
		if r = t.newRow(0); r < 0 {
			return
		}
		t.roots[key] = r
	}
	for i := 0; r >= 0 && i <= len(path); i++ {
		token := tokenAt(path, i)
		if i < known {
			r = t.step(r, token, 0)
			continue
		}
		r = t.bump(r, token)
	}
}

// lastRow is the row of an application's last token.
func (t *Table) lastRow(application, token int32) int32 {
	key := [2]int32{application, token}
	r, ok := t.lasts[key]
	if !ok {
		r = int32(len(t.rows))
		t.rows = append(t.rows, row{first: -1, depth: -1})
		t.lasts[key] = r
	}
	return r
}

// newRow adds a row of a prefix; -1: there are enough.
func (t *Table) newRow(depth int32) int32 {
	if len(t.rows) >= t.opt.Rows {
		return -1
	}
	t.rows = append(t.rows, row{first: -1, depth: depth})
	return int32(len(t.rows) - 1)
}

// bump counts a token that followed a row, and gives the longer row; -1: none.
func (t *Table) bump(r, token int32) int32 {
	if t.rows[r].total > 1<<30 {
		return -1
	}
	t.rows[r].total++
	return t.step(r, token, 1)
}

// step goes along a token from a row and adds to its count; what is not there is
// added. It gives the longer row; -1: none.
func (t *Table) step(r, token, count int32) int32 {
	e := t.find(r, token)
	if e < 0 {
		e = int32(len(t.edges))
		t.edges = append(t.edges, edge{token: token, row: -1, next: t.rows[r].first})
		t.rows[r].first = e
	}
	t.edges[e].count += count
	if token != End && t.edges[e].row < 0 && !t.ofLast(r) {
		t.edges[e].row = t.newRow(t.rows[r].depth + 1)
	}
	return t.edges[e].row
}

// ofLast tells whether a row is of a last token: such rows have no longer ones.
func (t *Table) ofLast(r int32) bool { return t.rows[r].depth < 0 }
