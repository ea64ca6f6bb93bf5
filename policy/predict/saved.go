package predict

import (
	"cmp"
	"fmt"
	"slices"
)

// Saved is a table as plain values, in an order that depends on nothing but what
// was learnt.
type Saved struct {
	Tokens []Token // from number 1
	Rows   []SavedRow
	Scores []Score
}

// SavedRow counts what followed a prefix of a request, or a last token alone.
type SavedRow struct {
	App     int32
	Feature int32   // NoFeature: of all requests
	Last    bool    // Prefix is a last token alone
	Prefix  []int32 // numbers of tokens
	Next    []Count
}

// Count is how often a token followed.
type Count struct{ Token, Count int32 }

// Score says of an application's requests with features how often the next token
// was asked for, and how often either way of predicting was right.
type Score struct{ Asked, Plain, Feature int32 }

// Save gives the table as plain values.
func (t *Table) Save() *Saved {
	s := &Saved{}
	for i := range t.tokens.list[1:] {
		k := &t.tokens.list[i+1]
		s.Tokens = append(s.Tokens, Token{Service: k.Service, Work: k.Work, Inputs: slices.Clone(k.Inputs)})
	}
	for key, r := range t.roots {
		t.save(s, key, r, nil)
	}
	for key, r := range t.lasts {
		s.Rows = append(s.Rows, SavedRow{App: key[0], Feature: NoFeature, Last: true, Prefix: []int32{key[1]}, Next: t.counts(r)})
	}
	slices.SortFunc(s.Rows, func(a, b SavedRow) int {
		last := func(r *SavedRow) int {
			if r.Last {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(last(&a), last(&b)), cmp.Compare(a.Feature, b.Feature), slices.Compare(a.Prefix, b.Prefix))
	})
	for _, a := range t.apps {
		s.Scores = append(s.Scores, Score{a.asked, a.plain, a.feature})
	}
	return s
}

// save adds a row of a prefix and those of the longer ones.
func (t *Table) save(s *Saved, key [2]int32, r int32, prefix []int32) {
	if next := t.counts(r); len(next) > 0 {
		s.Rows = append(s.Rows, SavedRow{App: key[0], Feature: key[1], Prefix: slices.Clone(prefix), Next: next})
	}
	for e := t.rows[r].first; e >= 0; e = t.edges[e].next {
		if k := &t.edges[e]; k.row >= 0 {
			t.save(s, key, k.row, append(prefix, k.token))
		}
	}
}

// counts are the tokens that followed a row, by number.
func (t *Table) counts(r int32) (out []Count) {
	for e := t.rows[r].first; e >= 0; e = t.edges[e].next {
		if k := &t.edges[e]; k.count > 0 {
			out = append(out, Count{k.token, k.count})
		}
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

// Load makes a table from plain values.
func Load(opt Options, s *Saved) (*Table, error) {
	t := New(opt)
	for _, a := range s.Scores {
		t.apps = append(t.apps, app{a.Asked, a.Plain, a.Feature})
	}
	for i := range s.Tokens {
		k := &s.Tokens[i]
		if n := t.Number(k.Service, k.Work, k.Inputs); n != int32(i+1) {
			return nil, fmt.Errorf("loading transition tables: tokens %d and %d are the same", n, i+1)
		}
	}
	for i := range s.Rows {
		if err := t.load(&s.Rows[i]); err != nil {
			return nil, fmt.Errorf("loading transition tables: row %d: %w", i, err)
		}
	}
	return t, nil
}

// load adds a row.
func (t *Table) load(w *SavedRow) error {
	for _, n := range w.Prefix {
		if n < 1 || int(n) >= len(t.tokens.list) {
			return fmt.Errorf("its prefix names token %d, expected 1 to %d", n, len(t.tokens.list)-1)
		}
	}
	if w.App < 0 || w.Last && len(w.Prefix) != 1 {
		return fmt.Errorf("application %d with a prefix of %d tokens, expected an index and, of a last token, one", w.App, len(w.Prefix))
	}
	if int(w.App) >= len(t.apps) && w.Feature != NoFeature {
		return fmt.Errorf("it has a feature, and application %d no score", w.App)
	}
	r := int32(-1)
	if w.Last {
		r = t.lastRow(w.App, w.Prefix[0])
	} else {
		r = t.prefixRow(w)
	}
	for _, n := range w.Next {
		if n.Token < 0 || int(n.Token) >= len(t.tokens.list) || n.Count < 1 {
			return fmt.Errorf("token %d follows %d times, expected one of 0 to %d and a count of at least 1", n.Token, n.Count, len(t.tokens.list)-1)
		}
		if r < 0 {
			continue // more prefixes than the table may have
		}
		if t.rows[r].total > 1<<30-n.Count {
			return fmt.Errorf("its counts add up to more than %d", 1<<30)
		}
		t.rows[r].total += n.Count
		t.step(r, n.Token, n.Count)
	}
	return nil
}

// prefixRow is the row of a prefix; -1: there are enough rows.
func (t *Table) prefixRow(w *SavedRow) int32 {
	key := [2]int32{w.App, w.Feature}
	r, ok := t.roots[key]
	if !ok {
		if r = t.newRow(0); r < 0 {
			return -1
		}
		t.roots[key] = r
	}
	for _, n := range w.Prefix {
		if r < 0 {
			break
		}
		r = t.step(r, n, 0)
	}
	return r
}
