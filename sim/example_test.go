package sim_test

import (
	"fmt"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/solver/stoch"
	"inferplan/testkit/methodspage"
)

// TestSimulatorExample computes the worked examples of docs/methods/simulator.md: an M/D/1 station, which the simulator runs,
// a look of the sequential test, and iterations of a language model.
func TestSimulatorExample(t *testing.T) {
	// The station at load .8: what theory says, which the simulated interval must hold.
	const load = .8
	i := slices.IndexFunc(queueCases, func(c queueCase) bool { return c.name == "M/D/1" })
	station := &queueCases[i]
	mean, halfWidth, _, err := station.simulate(load, 1)
	if err != nil {
		t.Fatal(err)
	}
	theory := station.meanWait(load)
	if mean-halfWidth > theory || mean+halfWidth < theory {
		t.Errorf("the simulated wait is %g ± %g s, theory says %g s", mean, halfWidth, theory)
	}

	// One look of the sequential test, for an attainment of .99.
	lowerEnd := func(attainments ...float64) float64 {
		mean, distance := stoch.OneSidedMean(attainments, .95)
		return mean - distance
	}

	// An iteration of three decoding sequences with and without a prompt beside them.
	iteration := formats.Iteration{BaseNS: 10e6, SequenceNS: .1e6, ContextNS: 200, PromptNS: .05e6, HingeTokens: 64}
	decoding := formats.IterationWork{DecodingSequences: 3, ContextTokens: 3000}
	withPrompt := decoding
	withPrompt.PrefillSequences, withPrompt.PromptTokens = 1, 261
	methodspage.Require(t, "simulator.md", "## Example",
		fmt.Sprintf("W_q = %.2f ms", 1e3*theory),
		fmt.Sprintf("lower end is %.4f", lowerEnd(.991, .993, .990, .994, .992)), fmt.Sprintf("lower end %.4f", lowerEnd(.989, .993, .990, .994, .992)),
		fmt.Sprintf("takes %v", iteration.Duration(decoding)), fmt.Sprintf("it takes %v", iteration.Duration(withPrompt)))
}
