package main

import "fmt"

func (b *bench) generationTable() error {
	policies := []string{"greedy", "reactive", "static", "dyorc"}
	var scenes []*scene
	for _, sc := range append(scenesOf([]row{{2, []float64{2, 6, 20}}, {-1, []float64{4, 12}}}, 32, 40), scenesOf([]row{{2, []float64{2, 5}}, {-1, []float64{3}}}, 8, 24)...) {
		sc.Generations, sc.Spread = true, .6
		scenes = append(scenes, sc)
	}
	grid, err := b.grid(scenes, policies, false)
	if err != nil {
		return err
	}
	b.header(append([]string{"scene", "bound"}, policies...)...)
	for s, sc := range scenes {
		cells := []string{fmt.Sprintf("%s (%.2f)", sc.Name, meanOf(grid[s][0], func(r *outcome) float64 { return r.Offered })), fmt.Sprintf("%.2f", meanOf(grid[s][0], func(r *outcome) float64 { return r.Bound }))}
		for p := range policies {
			runs := grid[s][p]
			cells = append(cells, fmt.Sprintf("%.2f / %.2f (%.1f, %.0f)", meanOf(runs, mean), meanOf(runs, p99), meanOf(runs, func(r *outcome) float64 { return r.Running }), meanOf(runs, func(r *outcome) float64 { return r.Rate })))
		}
		b.line(cells...)
	}
	return nil
}
