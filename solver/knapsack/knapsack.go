package knapsack

import "math"

// Choice is an item of a list, of which one is chosen.
type Choice struct{ Value, Weight float64 }

// roundingSlack is the part of a unit that rounding may be off by: a weight of 3 units stays one of 3.
const roundingSlack = 1e-9

// BestChoices chooses one item of each list, such that the values sum to the most and the weights to no more than the
// capacity. It returns, by list, the index of the chosen item. Weights are rounded up to units, of which a weight of 1 has unitsPerWeight. Of
// equal choices the earlier items are taken. If nothing fits, it returns the first item of each list, which should
// be the lightest.
//
// With V_i(u) the most value of the first i lists in at most u units,
//
//	V_i(u) = max_k V_{i-1}(u - weight(i, k)) + value(i, k)
func BestChoices(lists [][]Choice, capacity, unitsPerWeight float64) []int {
	maxUnits := int(capacity*unitsPerWeight + roundingSlack)
	weight := func(choice *Choice) int { return int(math.Ceil(choice.Weight*unitsPerWeight - roundingSlack)) }
	value := make([]float64, maxUnits+1) // V_i, by units
	chosen := make([][]int, len(lists))  // by list and units: the best item
	for i, list := range lists {
		nextValue := make([]float64, maxUnits+1)
		chosen[i] = make([]int, maxUnits+1)
		for units := range nextValue {
			nextValue[units] = math.Inf(-1)
			for k := range list {
				if rest := units - weight(&list[k]); rest >= 0 && value[rest]+list[k].Value > nextValue[units] {
					nextValue[units], chosen[i][units] = value[rest]+list[k].Value, k
				}
			}
		}
		value = nextValue
	}

	// Follow the chosen items back from the capacity.
	picks := make([]int, len(lists))
	if math.IsInf(value[maxUnits], -1) {
		return picks
	}
	rest := maxUnits
	for i := len(lists) - 1; i >= 0; i-- {
		picks[i] = chosen[i][rest]
		rest -= weight(&lists[i][picks[i]])
	}
	return picks
}
