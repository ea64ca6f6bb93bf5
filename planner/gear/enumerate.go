package gear

// Cascade is a sequence of models with a threshold level after each but the last. Its counts are of the planning
// samples.
type Cascade struct {
	Models  []uint8 // indexes of models, ascending
	Levels  []uint8 // samples of a lower level are forwarded; one less than models
	Reach   []int32 // by model: samples that reach it
	Correct int32   // samples that are answered correctly
}

// enumerator visits all cascades depth first. A node is a prefix of models and levels, with the samples that all
// models of the prefix but the last forward.
type enumerator struct {
	s       *Samples
	grid    int
	usable  []bool
	order   [][]int32 // by depth: the node's samples, sorted by the level of its last model
	models  []uint8
	levels  []uint8
	reach   []int32
	out     []Cascade
	counts  [][]int32 // by depth: number of samples below each level
	correct [][]int32 // by depth: number of correct answers below each level
}

// Enumerate lists all cascades over increasing sequences of the usable models and the levels 1 to grid-1. It
// leaves out levels at which a model forwards no sample or all samples, because shorter cascades do the same.
func Enumerate(s *Samples, grid int, usable []bool) []Cascade {
	m := len(s.Levels)
	e := &enumerator{s: s, grid: grid, usable: usable}
	for range m {
		e.order = append(e.order, make([]int32, s.N))
		e.counts = append(e.counts, make([]int32, grid+1))
		e.correct = append(e.correct, make([]int32, grid+1))
	}
	all := make([]int32, s.N)
	for i := range all {
		all[i] = int32(i)
	}
	for first := range m {
		e.node(first, 0, all, 0)
	}
	return e.out
}

// visitPrefix visits the prefix that ends in a model at a depth. samples reach the model, and correctBefore
// answers of the models before are correct.
func (e *enumerator) node(model, depth int, samples []int32, answered int32) {
	if !e.usable[model] {
		return
	}
	e.models = append(e.models[:depth], uint8(model))
	e.reach = append(e.reach[:depth], int32(len(samples)))
	levels, correct := e.s.Levels[model], e.s.Correct[model]

	// The cascade that ends here.
	right := int32(0)
	for _, i := range samples {
		if correct[i] {
			right++
		}
	}
	e.emit(depth, answered+right)
	if model+1 == len(e.s.Levels) {
		return
	}

	// Count samples and correct answers below each level.
	below, rightBelow := e.counts[depth], e.correct[depth]
	clear(below)
	clear(rightBelow)
	for _, i := range samples {
		below[levels[i]+1]++
		if correct[i] {
			rightBelow[levels[i]+1]++
		}
	}
	for l := 1; l <= e.grid; l++ {
		below[l] += below[l-1]
		rightBelow[l] += rightBelow[l-1]
	}

	// Sort the samples by level (counting sort), so that those below a level are a prefix.
	sorted := e.order[depth][:len(samples)]
	var at [256]int32
	copy(at[:], below[:e.grid])
	for _, i := range samples {
		l := levels[i]
		sorted[at[l]] = i
		at[l]++
	}

	// Go on with each level and next model.
	for l := 1; l < e.grid; l++ {
		if below[l] == 0 || below[l] == int32(len(samples)) {
			continue
		}
		e.levels = append(e.levels[:depth], uint8(l))
		for next := model + 1; next < len(e.s.Levels); next++ {
			e.node(next, depth+1, sorted[:below[l]], answered+right-rightBelow[l])
		}
	}
}

// addCascade adds the cascade of the current prefix.
func (e *enumerator) emit(depth int, correct int32) {
	n := depth + 1
	bytes := make([]uint8, 2*n-1)
	copy(bytes, e.models[:n])
	copy(bytes[n:], e.levels[:depth])
	e.out = append(e.out, Cascade{Models: bytes[:n:n], Levels: bytes[n:], Reach: append([]int32(nil), e.reach[:n]...), Correct: correct})
}
