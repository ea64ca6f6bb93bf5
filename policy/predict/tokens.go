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
type tokenNumbers struct {
	tokens         []Token
	lastOfHash     map[uint64]int32 // by hash: number of the last token with it
	previousOfHash []int32          // number of the token before with the same hash; 0 if none
}

// newTokenNumbers returns an empty numbering of tokens. Number 0 is End.
func newTokenNumbers() tokenNumbers {
	return tokenNumbers{tokens: make([]Token, 1), lastOfHash: map[uint64]int32{}, previousOfHash: make([]int32, 1)}
}

// numberOf returns the number of a token: a kind of task by its service, its work and how far back in the request's list
// of tasks its inputs are. A new token gets the next number, from 1 on. Tokens are found by an FNV-1a hash of these;
// those with an equal hash are chained by their numbers, where 0 ends a chain. The inputs are copied, so that the caller
// may reuse the list.
func (numbers *tokenNumbers) numberOf(service int32, work int64, inputs []int32) int32 {
	const offsetBasis, prime = 14695981039346656037, 1099511628211 // of the 64-bit FNV-1a hash
	hash := (offsetBasis ^ uint64(uint32(service))) * prime
	hash = (hash ^ uint64(work)) * prime
	for _, input := range inputs {
		hash = (hash ^ uint64(uint32(input))) * prime
	}

	// Look for the token among those with its hash.
	lastNumber := numbers.lastOfHash[hash]
	for number := lastNumber; number != 0; number = numbers.previousOfHash[number] {
		if token := &numbers.tokens[number]; token.Service == service && token.Work == work && slices.Equal(token.Inputs, inputs) {
			return number
		}
	}

	// It is new: add it to the chain of its hash.
	number := int32(len(numbers.tokens))
	numbers.tokens = append(numbers.tokens, Token{Service: service, Work: work, Inputs: slices.Clone(inputs)})
	numbers.previousOfHash = append(numbers.previousOfHash, lastNumber)
	numbers.lastOfHash[hash] = number
	return number
}
