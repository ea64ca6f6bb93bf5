package predict

// PredictTokens appends the predicted tokens from a cursor up to the end of the request, at most `limit` of them. With
// Options.MinChance it stops at the first token with a smaller chance.
func (t *Table) Ahead(c Cursor, limit int, dst []int32) []int32 {
	for range limit {
		token := t.next(&c)
		if token == End || t.opt.Sure > 0 && share(t, t.row(&c), token) < t.opt.Sure {
			break
		}
		dst = append(dst, token)
		t.Advance(&c, token)
	}
	return dst
}

// TokenChance is the chance of a token.
type Share struct {
	Token int32
	Share float64
}

// NextChances appends the chances of the next token at a cursor. If nothing is known, it appends nothing.
func (t *Table) Shares(c *Cursor, dst []Share) []Share {
	r := t.row(c)
	if r < 0 {
		return dst
	}
	for e := t.rows[r].first; e >= 0; e = t.edges[e].next {
		if n := t.edges[e].count; n > 0 {
			dst = append(dst, Share{t.edges[e].token, float64(n) / float64(t.rows[r].total)})
		}
	}
	return dst
}

// chanceOf returns the chance of a token in a row.
func share(t *Table, row, token int32) float64 {
	e := t.find(row, token)
	return float64(t.edges[e].count) / float64(t.rows[row].total)
}

// nextToken returns the token that is predicted at a cursor: the likeliest, or one drawn by chance.
func (t *Table) next(c *Cursor) int32 {
	r := t.row(c)
	if r < 0 || t.rng == nil {
		return t.likely(r)
	}
	left := t.rng.Int32N(t.rows[r].total)
	for e := t.rows[r].first; e >= 0; e = t.edges[e].next {
		if left -= t.edges[e].count; left < 0 {
			return t.edges[e].token
		}
	}
	return End
}

// predictingRow returns the row that predicts at a cursor. If there is none, it returns -1.
func (t *Table) row(c *Cursor) int32 {
	if r := t.featureRow(c); r >= 0 && c.rows[1] == r {
		if a := &t.apps[c.app]; a.feature > a.plain {
			return r
		}
	}
	return t.plainRow(c)
}

// featureRow returns the row with the feature. If it has too few samples, it returns the plain row.
func (t *Table) featureRow(c *Cursor) int32 {
	if r := c.rows[1]; r >= 0 && t.rows[r].total >= t.opt.Least {
		return r
	}
	return t.plainRow(c)
}

// plainRow returns the row of the full prefix. If it has too few samples, it returns that of the last token, and if that
// has none, -1.
func (t *Table) plainRow(c *Cursor) int32 {
	if r := c.rows[0]; r >= 0 && t.rows[r].total >= t.opt.Least {
		return r
	}
	if r, ok := t.lasts[[2]int32{c.app, c.last}]; ok && t.rows[r].total > 0 {
		return r
	}
	return -1
}

// likeliestToken returns the token that followed a row most often; of two, the smaller one.
func (t *Table) likely(r int32) int32 {
	if r < 0 {
		return End
	}
	best, count := End, int32(0)
	for e := t.rows[r].first; e >= 0; e = t.edges[e].next {
		if k := &t.edges[e]; k.count > count || k.count == count && count > 0 && k.token < best {
			best, count = k.token, k.count
		}
	}
	return best
}
