package predict

// PredictTokens appends the predicted tokens from a cursor up to the end of the request, at most `limit` of them. With
// Options.MinChance it stops at the first token with a smaller chance.
func (t *TransitionTable) PredictTokens(c Cursor, limit int, dst []int32) []int32 {
	for range limit {
		token := t.nextToken(&c)
		if token == End || t.options.MinChance > 0 && chanceOf(t, t.predictingRow(&c), token) < t.options.MinChance {
			break
		}
		dst = append(dst, token)
		t.Advance(&c, token)
	}
	return dst
}

// TokenChance is the chance of a token.
type TokenChance struct {
	Token  int32
	Chance float64
}

// NextChances appends the chances of the next token (kind of task) of a request at a cursor (its path so far) to
// dst: how often each followed such a path. If nothing is known, it appends nothing.
func (t *TransitionTable) NextChances(c *Cursor, dst []TokenChance) []TokenChance {
	r := t.predictingRow(c)
	if r < 0 {
		return dst
	}
	for e := t.rows[r].firstEdge; e >= 0; e = t.edges[e].nextEdge {
		if n := t.edges[e].count; n > 0 {
			dst = append(dst, TokenChance{t.edges[e].token, float64(n) / float64(t.rows[r].samples)})
		}
	}
	return dst
}

// chanceOf returns the chance of a token in a row.
func chanceOf(t *TransitionTable, row, token int32) float64 {
	e := t.findEdge(row, token)
	return float64(t.edges[e].count) / float64(t.rows[row].samples)
}

// nextToken returns the token (kind of task) that is predicted at a cursor (a request's path so far): the likeliest
// or, if the table samples, one drawn by its share. End means that the request ends or that nothing is known.
func (t *TransitionTable) nextToken(c *Cursor) int32 {
	r := t.predictingRow(c)
	if r < 0 || t.rng == nil {
		return t.likeliestToken(r)
	}
	remaining := t.rng.Int32N(t.rows[r].samples)
	for e := t.rows[r].firstEdge; e >= 0; e = t.edges[e].nextEdge {
		if remaining -= t.edges[e].count; remaining < 0 {
			return t.edges[e].token
		}
	}
	return End
}

// predictingRow returns the row of the table that predicts at a cursor (a request's path so far): the one with the
// request's feature if such rows were right more often, else the one without. If there is none, it returns -1.
func (t *TransitionTable) predictingRow(c *Cursor) int32 {
	if r := t.featureRow(c); r >= 0 && c.rows[1] == r {
		if a := &t.scores[c.app]; a.featureHits > a.plainHits {
			return r
		}
	}
	return t.plainRow(c)
}

// featureRow returns the row of a request's path together with its feature. If it has too few samples, it returns
// the row without the feature.
func (t *TransitionTable) featureRow(c *Cursor) int32 {
	if r := c.rows[1]; r >= 0 && t.rows[r].samples >= t.options.MinSamples {
		return r
	}
	return t.plainRow(c)
}

// plainRow returns the table's row for a request's whole path so far, without its feature. If it has too few
// samples, it returns the row of the last token (kind of task) alone, and if that has none, -1.
func (t *TransitionTable) plainRow(c *Cursor) int32 {
	if r := c.rows[0]; r >= 0 && t.rows[r].samples >= t.options.MinSamples {
		return r
	}
	if r, ok := t.lastTokenRows[[2]int32{c.app, c.lastToken}]; ok && t.rows[r].samples > 0 {
		return r
	}
	return -1
}

// likeliestToken returns the token (kind of task) that followed the paths of a row most often; of two equal ones
// the smaller. For row -1 or an empty row it returns End.
func (t *TransitionTable) likeliestToken(r int32) int32 {
	if r < 0 {
		return End
	}
	likeliest, count := End, int32(0)
	for e := t.rows[r].firstEdge; e >= 0; e = t.edges[e].nextEdge {
		if k := &t.edges[e]; k.count > count || k.count == count && count > 0 && k.token < likeliest {
			likeliest, count = k.token, k.count
		}
	}
	return likeliest
}
