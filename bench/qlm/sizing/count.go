package sizing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/bench/qlm/fleet"
	"inferplan/formats"
	"inferplan/planner/queue/deploy"
	"inferplan/policy"
)

// Competitor is a policy with the fleets that it may choose.
type Competitor struct {
	Name       string
	Structures deploy.SearchOptions
	Policy     formats.PolicySpec
	Make       func(t *policy.Tables) (policy.Policy, error)
	OneModel   bool // of interest for one model alone
}

// Competitors are the planner, and what it is held against. All choose their best
// number of sequences at once for each model of a pool.
var Competitors = []Competitor{
	{Name: "planned", Structures: deploy.SearchOptions{SeparateClasses: true}, Policy: formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"by_deadline": 1, "group_scale": 1, "one_open": 1, "follow": 1}}},
	{Name: "partition, EDF", Structures: alone, Policy: simple, Make: byDeadline.new},
	{Name: "partition, FCFS", Structures: alone, Policy: simple, Make: byArrival.new},
	{Name: "partition, gateway-like", Structures: alone, Policy: simple, Make: inBands.new},
	{Name: "split by class, EDF", Structures: deploy.SearchOptions{SeparateClasses: true, OnlySeparateClasses: true}, Policy: simple, Make: byDeadline.new, OneModel: true},
}

// Of partitions: each model has replicas of its own. What orders their requests is
// made by the competitor; the plan names a policy that any tables have.
var (
	alone  = deploy.SearchOptions{SeparateModels: true}
	simple = formats.PolicySpec{Name: "balance"}
)

// Sized is the fleet that a competitor needs.
type Sized struct {
	GPUs     int        // 0 stands for more than there are
	Fleet    string     // in words
	Attained [2]float64 // of interactive and of batch requests
	Tried    int        // simulations
}

// Count finds the fewest GPUs of a competitor.
func Count(ctx context.Context, d *fleet.Data, c *Case, k *Competitor) (*Sized, error) {
	p, err := c.Problem(d)
	if err != nil {
		return nil, err
	}
	p.Policy, p.NewPolicy = k.Policy, k.Make
	if len(c.Popularity) == 1 && p.Policy.Name == "vqueue" {
		p.Policy.Params = map[string]float64{"by_deadline": 1, "group_scale": 1, "follow": 1}
	}
	f, err := deploy.NewSearch(p).CheapestLayout(ctx, k.Structures, 0, nil)
	if errors.Is(err, deploy.ErrTooFewDevices) {
		return &Sized{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", c.Name, k.Name, err)
	}
	gpus := 0
	for i := range f.Layout.Pools {
		gpus += f.Layout.Pools[i].InstanceCount()
	}
	return &Sized{GPUs: gpus, Fleet: words(p, f.Layout), Attained: [2]float64{attained(p, f, 0), attained(p, f, 1)}, Tried: f.Simulations}, nil
}

// attained is the share in time of the classes of a figure.
func attained(p *deploy.Problem, f *deploy.LayoutResult, figure int) float64 {
	o := p.OutcomesOf(&f.Score, figure)
	return o.Attainment()
}

// words describe a fleet: each pool with its instances and sequences at once, those
// of one model that are alike together.
func words(p *deploy.Problem, l *deploy.Layout) string {
	var out []string
	alike := map[string][]string{}
	for i := range l.Pools {
		x := &l.Pools[i]
		models := p.ModelsOf(x.Items)
		var caps, classes []string
		for _, m := range models {
			if cap := fmt.Sprint(x.Caps[0][m]); !slices.Contains(caps, cap) {
				caps = append(caps, cap)
			}
		}
		if len(x.Items) < len(models)*len(p.Classes) {
			for _, item := range x.Items {
				classes = append(classes, p.Classes[p.Items[item].Class].Name)
			}
		}
		text := fmt.Sprintf("at %s %s", strings.Join(caps, "/"), strings.Join(classes, ", "))
		if len(models) > 1 {
			out = append(out, fmt.Sprintf("%d for %d models %s", x.InstanceCount(), len(models), text))
			continue
		}
		text = fmt.Sprintf("%d each %s", x.InstanceCount(), text)
		alike[text] = append(alike[text], p.Models[models[0]].Name)
	}
	for _, text := range slices.Sorted(maps.Keys(alike)) {
		names := strings.Join(alike[text], ", ")
		if n := len(alike[text]); n > 2 {
			names = fmt.Sprintf("%d models", n)
		}
		out = append(out, strings.TrimSpace(text)+" for "+names)
	}
	return strings.Join(out, " + ")
}
