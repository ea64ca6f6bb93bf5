package poolrelaxed

import (
	"context"
	"math"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// Relax lists the templates of a problem without time-shared pools, solves its relaxation, and returns it with the best
// plan that rounding finds.
func Relax(p *problem.Problem) (*relaxation.WaitChoice, *incumbent.Incumbent, error) {
	catalogue, err := templates.ListAll(p)
	if err != nil {
		return nil, nil, err
	}
	solved, err := relaxation.Solve(context.Background(), catalogue, highs.Solver{}, nil, catalogue.AllTemplates())
	if err != nil {
		return nil, nil, err
	}
	choice := &relaxation.WaitChoice{Catalogue: catalogue, AllowedTemplates: catalogue.AllTemplates(), Relaxation: solved, Bound: solved.Bound}
	choice.ComputeLosses()
	best := &incumbent.Incumbent{Catalogue: catalogue, Goal: incumbent.MaxThroughput{}, ChoiceBound: solved.Bound, OtherBound: math.Inf(-1)}
	best.RoundRelaxation(choice)
	return choice, best, nil
}

// PlanOver returns the best plan that the integer program over all templates of a choice finds within some thousand
// nodes. Without one it returns nil.
func PlanOver(choice *relaxation.WaitChoice) (*placement.Plan, error) {
	program := programs.New(choice.Catalogue, choice.AllowedTemplates, choice.Relaxation.Bound, 0)
	sol, err := highs.Solver{}.Solve(context.Background(), program.Model, milp.Options{Gap: 1e-7, MaxNodes: 3000})
	if err != nil || !sol.Feasible() {
		return nil, err
	}
	return program.ReadPlan(sol), nil
}
