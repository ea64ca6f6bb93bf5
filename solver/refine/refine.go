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
// ofNodes and ofTuples are the classes by index. In each round the name of a class says all by which its members are
// alike; nodes of the same name stay together.
func RefineColours(colours []int, tuples []Tuple) (ofNodes, ofTuples []int) {
	// The tuples and positions in which each node occurs.
	positionsOf := make([][]tuplePosition, len(colours))
	for i, t := range tuples {
		for position, n := range t.Nodes {
			positionsOf[n] = append(positionsOf[n], tuplePosition{i, position})
		}
	}
	ofTuples = make([]int, len(tuples))
	previousCount := -1 // classes of nodes after the round before
	for {
		// The class of a tuple: its label and the classes of its nodes.
		tupleNames, nodeNames := nameNumbers{}, nameNumbers{}
		for i, t := range tuples {
			name := fmt.Sprint(t.Label)
			for _, n := range t.Nodes {
				name += fmt.Sprint(" ", colours[n])
			}
			ofTuples[i] = tupleNames.numberOf(name)
		}

		// The class of a node: its old class and the classes of its tuples.
		ofNodes = make([]int, len(colours))
		for n := range colours {
			var positions []string
			for _, place := range positionsOf[n] {
				positions = append(positions, fmt.Sprint(ofTuples[place.tuple], "/", place.position))
			}
			slices.Sort(positions)
			ofNodes[n] = nodeNames.numberOf(fmt.Sprint(colours[n], ":", strings.Join(positions, " ")))
		}
		if len(nodeNames) == previousCount {
			return ofNodes, ofTuples
		}
		colours, previousCount = ofNodes, len(nodeNames)
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
