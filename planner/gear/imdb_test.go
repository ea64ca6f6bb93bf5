package gear

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inferplan/formats/importer/records"
)

// imdb3 are real certainties of three services with latencies of three models
// of growing size (the pairing is the cross-check's).
func imdb3(t *testing.T, devices, grid int) *Problem {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "cascade", "frugalml_imdb_60pct.csv.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no records at %s; set INFERPLAN_DATA to the folder that holds cascade/", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := []string{"GitHub(Vader)", "Amazon", "Google"}
	r, err := records.Read(f, "imdb", records.Options{Models: names, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &Problem{Grid: grid, Devices: devices, SLO: 200 * time.Millisecond, Percentile: .95, Edges: Ranges(7600, 10), Weights: Zipf(10)}
	if p.Thresholds, p.Planned, p.HeldOut, err = Grade(r, names, grid); err != nil {
		t.Fatal(err)
	}
	for k, table := range [][5]float64{
		{1.7493, 1.8458, 1.9350, 1.9386, 1.9412}, {9.7840, 10.3600, 10.7732, 10.7732, 10.8056}, {19.1498, 20.2024, 21.3251, 21.3251, 21.3690},
	} {
		m := Model{Name: names[k]}
		for i, ms := range table {
			for len(m.Times) < 1<<i {
				m.Times = append(m.Times, time.Duration(math.Round(ms*1e6)))
			}
		}
		p.Models = append(p.Models, m)
	}
	return p
}

// Real records: cascades, front, accuracy and bound of the cross-check (notes,
// sections 3 and 5).
func TestPublishedImdb(t *testing.T) {
	for _, c := range []struct{ grid, cascades, front int }{{10, 111, 44}, {20, 421, 91}} {
		p := imdb3(t, 2, c.grid)
		list := Enumerate(p.Planned, c.grid, p.usable())
		work := p.works(list)
		front := pareto(totals(work), list)
		if len(list) != c.cascades || len(front) != c.front {
			t.Errorf("grid %d: %d cascades, front of %d, expected %d and %d", c.grid, len(list), len(front), c.cascades, c.front)
		}
	}
	for _, c := range []struct {
		devices         int
		accuracy, bound float64
	}{{2, .8160, .8172}, {4, .8462, .8474}} {
		out, err := Solve(context.Background(), imdb3(t, c.devices, 20), nil, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("on %d: accuracy %.4f, bound %.4f, %d simulations", c.devices, out.Accuracy, out.Bound, out.Runs)
		if math.Abs(out.Accuracy-c.accuracy) > 5e-4 || math.Abs(out.Bound-c.bound) > 1e-4 {
			t.Errorf("on %d: accuracy %.4f, bound %.4f, expected %.4f and %.4f", c.devices, out.Accuracy, out.Bound, c.accuracy, c.bound)
		}
	}
}
