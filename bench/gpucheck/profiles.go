package gpucheck

import (
	"context"
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// served are the two models that most steps need a profile of.
var served = []string{"resnet50", "squeezenet"}

// profileOnce measures the served models, each on its own clock.
func profileOnce(ctx context.Context, c *check, r *StepResult) error {
	budget := 75 * time.Second
	if c.Quick {
		budget = 12 * time.Second
	}
	const what = "what it took, with loading and cutting"
	for _, name := range served {
		verdict := "seconds for " + name
		if r.judged(verdict) {
			continue
		}
		begun := c.measured("profile.json", name)
		took, err := c.measure(ctx, "profile.json", budget, []string{name}, c.batches())
		if err != nil {
			return err
		}
		if begun {
			r.note("%s: a call that was broken off had measured a part of it, whose seconds are not counted", name)
		}
		p, err := readProfile(c.out("profile.json"))
		if err != nil {
			return err
		}
		state := ""
		if s := p.Devices[0].State; s != nil {
			state = fmt.Sprintf("%.0f W (most %.0f), %d MHz (least %d), %d C, clocks lowered in %.0f %% of readings", s.WattsMedian, s.WattsMax, s.ClockMHzMedian, s.ClockMHzMin, s.CelsiusMax, 100*s.ThrottledShare)
		}
		t := r.table(what, "model", "batches", "blocks", "seconds", "device state")
		t.Rows = append(t.Rows, []string{name, fmt.Sprint(len(c.batches())), fmt.Sprint(c.blocks()), fmt.Sprintf("%.1f", took.Seconds()), state})
		r.verdict(verdict, "<= 120", math.Round(10*took.Seconds())/10, took <= 2*time.Minute)
		if err := c.keep(r); err != nil {
			return err
		}
	}
	r.wrote("profile.json")
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, additivity(p, "latency"))
	for _, n := range p.Notes {
		r.note("%s", n)
	}
	return nil
}

// additivity sets the chain of blocks against the whole.
func additivity(p *formats.Profile, title string) Table {
	t := Table{Title: title, Header: []string{"model", "share", "batch", "whole us", "half width", "p99 us", "host us", "chain us", "chain/whole"}}
	for _, m := range p.Models {
		for _, s := range m.Measurements {
			if s.WholeModel == nil {
				continue
			}
			chain := sum(s.Blocks)
			w := *s.WholeModel
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprintf("1/%d", s.Share), fmt.Sprint(s.Batch), micros(w.WallUS), fmt.Sprintf("%.1f %%", 100*float64(w.HalfWidthUS)/float64(w.WallUS)),
				micros(w.P99US), micros(w.HostUS), micros(chain), fmt.Sprintf("%.3f", float64(chain)/float64(w.WallUS))})
		}
	}
	return t
}

func sum(blocks []formats.Latency) (total document.Micros) {
	for _, b := range blocks {
		total += b.WallUS
	}
	return total
}

func micros(m document.Micros) string { return fmt.Sprintf("%.1f", float64(m.D())/1e3) }
