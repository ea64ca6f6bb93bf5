package predict

import "slices"

// End is the token that ends a request.
const End int32 = 0

// Token is a task that a request may ask for.
type Token struct {
	Service int32
	Work    int64 // millionths of the usual; 0 is the usual
	// Inputs are the tasks that it reads, as offsets back in the request's list of
	// tasks: 1 is the one before. 0 is the client's input.
	Inputs []int32
}

// tokenNumbers gives every token a number, from 1 on.
type tokens struct {
	list []Token
	by   map[uint64]int32 // by hash: number of the last token with it
	next []int32          // number of the token before with the same hash; 0 if none
}

func newTokens() tokens {
	return tokens{list: make([]Token, 1), by: map[uint64]int32{}, next: make([]int32, 1)}
}

// numberOf returns the number of a token. A new token gets the next number. The caller may reuse inputs.
func (t *tokens) number(service int32, work int64, inputs []int32) int32 {
	const prime = 1099511628211
	h := (14695981039346656037 ^ uint64(uint32(service))) * prime
	h = (h ^ uint64(work)) * prime
	for _, in := range inputs {
		h = (h ^ uint64(uint32(in))) * prime
	}
	first := t.by[h]
	for n := first; n != 0; n = t.next[n] {
		if k := &t.list[n]; k.Service == service && k.Work == work && slices.Equal(k.Inputs, inputs) {
			return n
		}
	}
	n := int32(len(t.list))
	t.list = append(t.list, Token{Service: service, Work: work, Inputs: slices.Clone(inputs)})
	t.next = append(t.next, first)
	t.by[h] = n
	return n
}
