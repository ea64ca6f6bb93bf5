package refine

import (
	"fmt"
	"slices"
	"strings"
)

// Tuple is a sequence of nodes with a label. Only tuples of the same label can be in the same class.
type Tuple struct {
	Label int
	Nodes []int
}

// RefineColours refines a colouring of nodes and of tuples of them (Weisfeiler and Leman) until no class splits any
// more, and returns the classes. Two nodes stay in a class if they have the same colour and occur in tuples of the same
// classes, at the same positions, equally often. Classes are numbered from 0 in the order of their first node, or tuple.
// The results have the classes by node and by tuple. In each round the name of a class is a text of everything in which
// its members are alike; nodes with the same name stay together.
func RefineColours(colours []int, tuples []Tuple) (nodeClasses, tupleClasses []int) {
	// List the tuples and positions in which each node occurs.
	positionsOf := make([][]tuplePosition, len(colours))
	for tupleIndex, tuple := range tuples {
		for position, node := range tuple.Nodes {
			positionsOf[node] = append(positionsOf[node], tuplePosition{tupleIndex, position})
		}
	}
	tupleClasses = make([]int, len(tuples))
	previousCount := -1 // number of classes of nodes after the round before
	for {
		// Name the class of a tuple by its label and the classes of its nodes.
		tupleNames, nodeNames := nameNumbers{}, nameNumbers{}
		for tupleIndex, tuple := range tuples {
			name := fmt.Sprint(tuple.Label)
			for _, node := range tuple.Nodes {
				name += fmt.Sprint(" ", colours[node])
			}
			tupleClasses[tupleIndex] = tupleNames.numberOf(name)
		}

		// Name the class of a node by its old class, and by the classes of its tuples with its positions in them.
		nodeClasses = make([]int, len(colours))
		for node := range colours {
			var positions []string
			for _, place := range positionsOf[node] {
				positions = append(positions, fmt.Sprint(tupleClasses[place.tuple], "/", place.position))
			}
			slices.Sort(positions)
			nodeClasses[node] = nodeNames.numberOf(fmt.Sprint(colours[node], ":", strings.Join(positions, " ")))
		}

		// Refine further only if a class has split.
		if len(nodeNames) == previousCount {
			return nodeClasses, tupleClasses
		}
		colours, previousCount = nodeClasses, len(nodeNames)
	}
}

// tuplePosition is a position in a tuple.
type tuplePosition struct{ tuple, position int }

// nameNumbers numbers names in the order in which they first occur.
type nameNumbers map[string]int

// numberOf returns the number of a name.
func (m nameNumbers) numberOf(name string) int {
	if _, ok := m[name]; !ok {
		m[name] = len(m)
	}
	return m[name]
}
