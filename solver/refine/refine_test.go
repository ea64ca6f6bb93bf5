package refine_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/refine"
)

func ExampleRefineColours() {
	// Three nodes of one colour. Two are ends of a tuple, at different places.
	nodes, tuples := refine.RefineColours([]int{7, 7, 7}, []refine.Tuple{{Nodes: []int{0, 1}}})
	fmt.Println(nodes, tuples)
	// Output: [0 1 2] [0]
}

// Whatever is drawn: classes keep colours apart, alike tuples join alike nodes, and alike
// nodes stand in alike tuples at the same places equally often. An order of the nodes that
// maps the structure onto itself never leaves a class.
func TestRefinedClassesAreInterchangeable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		colours := rapid.SliceOfN(rapid.IntRange(0, 1), n, n).Draw(t, "colours")
		var tuples []refine.Tuple
		for range rapid.IntRange(0, 6).Draw(t, "tuples") {
			tuples = append(tuples, refine.Tuple{Label: rapid.IntRange(0, 1).Draw(t, "label"), Nodes: rapid.SliceOfN(rapid.IntRange(0, n-1), 1, 3).Draw(t, "of")})
		}
		nodes, classes := refine.RefineColours(colours, tuples)
		for a := range n {
			for b := range n {
				if nodes[a] == nodes[b] && (colours[a] != colours[b] || !slices.Equal(tuplePositions(a, tuples, classes), tuplePositions(b, tuples, classes))) {
					t.Fatalf("nodes %d and %d are in a class of %v, tuples %v", a, b, nodes, classes)
				}
			}
		}
		for i := range tuples {
			for j := range tuples {
				alike := tuples[i].Label == tuples[j].Label && slices.EqualFunc(tuples[i].Nodes, tuples[j].Nodes, func(a, b int) bool { return nodes[a] == nodes[b] })
				if alike != (classes[i] == classes[j]) {
					t.Fatalf("tuples %d and %d: classes %v of nodes %v", i, j, classes, nodes)
				}
			}
		}
		order := upTo(n)
		symmetries(order, 0, func() {
			if isSymmetry(colours, tuples, order) {
				for a, b := range order {
					if nodes[a] != nodes[b] {
						t.Fatalf("the order %v changes nothing, but the classes are %v", order, nodes)
					}
				}
			}
		})
	})
}

// tuplePositions lists where a node stands: in tuples of which class, at which place.
func tuplePositions(node int, tuples []refine.Tuple, classes []int) (list []string) {
	for i, t := range tuples {
		for at, n := range t.Nodes {
			if n == node {
				list = append(list, fmt.Sprint(classes[i], "/", at))
			}
		}
	}
	slices.Sort(list)
	return list
}

// isSymmetry tells whether an order of the nodes maps colours and tuples onto themselves.
func isSymmetry(colours []int, tuples []refine.Tuple, order []int) bool {
	var before, after []string
	for a, b := range order {
		if colours[a] != colours[b] {
			return false
		}
	}
	for _, t := range tuples {
		before = append(before, fmt.Sprint(t.Label, t.Nodes))
		var to []int
		for _, n := range t.Nodes {
			to = append(to, order[n])
		}
		after = append(after, fmt.Sprint(t.Label, to))
	}
	slices.Sort(before)
	slices.Sort(after)
	return slices.Equal(before, after)
}

// symmetries visits all orders from a place on.
func symmetries(order []int, from int, visit func()) {
	if from == len(order) {
		visit()
	}
	for i := from; i < len(order); i++ {
		order[from], order[i] = order[i], order[from]
		symmetries(order, from+1, visit)
		order[from], order[i] = order[i], order[from]
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}
