package deploy

import (
	"context"
	"fmt"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/solver/highs"
)

// TestFloorOfRareModels: many models that are asked for rarely need more instances than
// their work in full batches, and no fewer than simulation needs. Without Poisson
// arrivals nothing is known of how often requests are alone.
func TestFloorOfRareModels(t *testing.T) {
	p := chatAndBatch().Problem
	one := p.Models[0]
	p.Models, p.Items, p.WarmModels = nil, nil, 24
	for m := range 24 {
		profile := *one.Profile
		profile.Model = fmt.Sprint("m", m)
		profile.WeightBytes = 26e9
		on := *one.ByKind[0]
		on.Loads = &formats.ModelLoads{WarmUS: document.Micros(1e9), ColdUS: document.Micros(2e9)}
		p.Models = append(p.Models, Model{Name: profile.Model, Profile: &profile, ByKind: []*formats.LLMInstance{&on}})
		p.Items = append(p.Items, Item{Model: m, Class: 0, RPS: 0.03, Weight: 1})
	}
	p.Classes = p.Classes[:1]
	var prompts, outputs []int
	for _, r := range p.Classes[0].Sample {
		prompts, outputs = append(prompts, int(r.Prompt)), append(outputs, int(r.Output))
	}
	p.Classes[0].Prompt, p.Classes[0].Output = EmpiricalLengths(prompts), EmpiricalLengths(outputs)
	floor := func(process string) float64 {
		p.Arrivals = &formats.Arrivals{Process: process}
		bound, err := p.WorkBound(context.Background(), highs.Solver{}, GoalPrice)
		if err != nil {
			t.Fatal(err)
		}
		return bound
	}
	work, rare := floor("gamma"), floor("poisson")
	if rare < work+1 {
		t.Errorf("the bound is %g, by work alone %g", rare, work)
	}
	s := NewSearch(p)
	x, err := s.newPool([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{int(rare) - 1, 5} {
		x.Counts[0] = n
		score, err := s.Trials.trialPool(context.Background(), &x)
		if err != nil {
			t.Fatal(err)
		}
		if holds := s.Problem.keepsSLOs(&score, 1); holds != (n == 5) {
			t.Errorf("%d instances, the bound is %g: %v", n, rare, score)
		}
	}
}
