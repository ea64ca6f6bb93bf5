package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/picture"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
)

// sweep is a quantity of which a figure of the paper says how policies depend on
// it.
type sweep struct {
	name     string
	source   string // figure of the paper
	axis     string
	points   []point
	policies []*fleet.Policy
	claims   func(got *swept) []figures.Figure // nil if there are none
}

// point is a value of the quantity.
type point struct {
	x float64
	fleet.Case
}

// swept holds the results of the points of a sweep, by point and policy.
type swept struct {
	*sweep
	by [][]*pooled
}

// at returns the results of a policy at a point.
func (s *swept) at(point int, policy string) *pooled {
	for k, p := range s.policies {
		if p.Name == policy {
			return s.by[point][k]
		}
	}
	panic("sweep " + s.name + " has no policy " + policy)
}

// named are policies by name.
func named(names ...string) []*fleet.Policy {
	var out []*fleet.Policy
	for _, n := range names {
		out = append(out, fleet.Named(n))
	}
	return out
}

// measure runs a case with its seeds.
func (b *bench) measure(d *fleet.Data, c fleet.Case, n int) (*pooled, error) {
	return pool(b, d, c, 1, n)
}

// pool runs a case with n seeds from one on.
func pool(b *bench, d *fleet.Data, c fleet.Case, first, n int) (*pooled, error) {
	if b.small {
		n, c.To = 1, min(c.To, c.From+300)
	}
	n = max(n, 1)
	out := &pooled{rps: c.RPS}
	for seed := range n {
		c.Seed = uint64(first + seed)
		o, err := measured(b.keep, c.Key(), func() (*fleet.Outcome, error) { return d.Measure(b.ctx, &c) })
		if err != nil {
			return nil, err
		}
		out.add(o, n)
	}
	return out, nil
}

// sweep measures a sweep, and makes its table, picture and figures.
func (b *bench) sweep(t *table.Table, s *sweep) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	got := &swept{sweep: s}
	t.Columns = []string{s.axis, "policy", "in time %", "30 s class %", "requests/s to the last answer", "swaps per 100", "evictions per 100", "KV memory in use %"}
	for i := range s.points {
		var row []*pooled
		for _, p := range s.policies {
			c := s.points[i].Case
			c.Policy = p
			if c.To == 0 {
				c.To = b.rows
			}
			x, err := b.measure(d, c, b.seeds)
			if err != nil {
				return err
			}
			mean, _ := x.mean()
			t.Add(fmt.Sprintf("%g", s.points[i].x), p.Name, fmt.Sprintf("%.1f", mean), fmt.Sprintf("%.1f", x.class[0]), fmt.Sprintf("%.2f", x.throughput), fmt.Sprintf("%.1f", x.swaps), fmt.Sprintf("%.1f", x.evicted), fmt.Sprintf("%.1f", x.kv))
			row = append(row, x)
		}
		got.by = append(got.by, row)
	}
	t.Note("%s. Means of %d seeds, %d rows of the trace.", s.source, b.seeds, b.rows)
	if s.claims != nil {
		for _, f := range s.claims(got) {
			f.Note = strings.TrimLeft(strings.TrimRight(f.Note, "; ")+fmt.Sprintf("; %d rows, seeds %d", b.rows, b.seeds), "; ")
			b.figures = append(b.figures, f)
		}
	}
	return b.curves(got)
}

// Sizes of a picture.
const (
	picWidth, picHeight = 640, 360
	picLeft, picTop     = 60, 30
	picRight, picBottom = 480, 300
)

// curves writes the shares of requests in time over the points as a picture.
func (b *bench) curves(got *swept) error {
	pic := picture.New(picWidth, picHeight, 12)
	pic.Text(picLeft, 18, "", got.source+": requests in time, %")
	across := func(i int) float64 {
		return picLeft + (picRight-picLeft)*float64(i)/float64(max(1, len(got.points)-1))
	}
	for share := 0; share <= 100; share += 25 {
		y := picBottom - (picBottom-picTop)*float64(share)/100
		pic.Addf(`<line x1="%d" y1="%g" x2="%d" y2="%g" stroke="#ddd"/>`, picLeft, y, picRight, y)
		pic.Text(picLeft-32, y+4, "", fmt.Sprint(share))
	}
	for i := range got.points {
		pic.Text(across(i)-8, picBottom+18, "", fmt.Sprintf("%g", got.points[i].x))
	}
	pic.Text(picLeft+120, picBottom+42, "", got.axis)
	for k, p := range got.policies {
		colour := picture.Colours[k%len(picture.Colours)]
		var line [][2]float64
		for i := range got.points {
			mean, _ := got.by[i][k].mean()
			line = append(line, [2]float64{across(i), picBottom - (picBottom-picTop)*mean/100})
		}
		pic.Curve(colour, 2, line)
		pic.Text(picRight+16, float64(picTop+16*k), `fill="`+colour+`"`, p.Name)
	}
	path := filepath.Join(b.dir, got.name+".svg")
	if err := os.WriteFile(path, []byte(pic.String()), 0o644); err != nil {
		return fmt.Errorf("writing a picture: %w", err)
	}
	return nil
}
