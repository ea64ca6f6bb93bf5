package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"inferplan/bench/picture"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
)

// Sizes of a picture of timelines.
const (
	lineWidth, lineHeight = 1000, 22
	lineLeft, lineTop     = 150, 46
	lineAcross            = 820
)

// timelines shows what each instance does over a run.
func timelines(b *bench, t *table.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"policy", "instance", "runs %", "loads %", "idle %", "loads of models"}
	names := []string{"QLM", "SHEPHERD-like", "partition"}
	var lines [][]fleet.Stretch
	last := time.Duration(0)
	for _, name := range names {
		c := fleet.Case{Workload: &fleet.Workloads[0], Policy: fleet.Named(name), RPS: middle, To: b.rows, Instances: 4, Seed: 1}
		if b.small {
			c.To = 300
		}
		list, err := measured(b.keep, "timeline/"+c.Key(), func() ([]fleet.Stretch, error) { return d.Timeline(b.ctx, &c) })
		if err != nil {
			return err
		}
		end := list[len(list)-1].To
		for device := range int32(c.Instances) {
			var busy [2]time.Duration
			loads := 0
			for _, s := range list {
				if s.Device == device && s.Loading {
					busy[1], loads = busy[1]+s.To-s.From, loads+1
				} else if s.Device == device {
					busy[0] += s.To - s.From
				}
			}
			share := func(x time.Duration) string { return fmt.Sprintf("%.1f", 100*x.Seconds()/end.Seconds()) }
			t.Add(name, device, share(busy[0]), share(busy[1]), share(end-busy[0]-busy[1]), loads)
		}
		lines, last = append(lines, list), max(last, end)
	}
	t.Note("W_A at %g requests a second on four A100s, %d rows, seed 1, until the last answer: timelines.svg.", middle, b.rows)
	return strips(filepath.Join(b.dir, "timelines.svg"), names, lines, last)
}

// strips draws a strip for each instance under each policy: models in colours, loads
// in black.
func strips(path string, names []string, lines [][]fleet.Stretch, last time.Duration) error {
	const each = 4
	pic := picture.New(lineWidth, lineTop+lineHeight*(each+1)*len(names)+30, 12)
	pic.Text(10, 18, "", fmt.Sprintf("W_A at %g requests a second on four A100s: what each instance runs until the last answer", middle))
	for n := range fleet.Workloads[0].Models {
		x := float64(lineLeft + 90*n)
		pic.Addf(`<rect x="%g" y="26" width="12" height="12" fill="%s"/>`, x, picture.Colours[n%len(picture.Colours)])
		pic.Text(x+16, 36, "", fmt.Sprintf("model-%d", n))
	}
	pic.Text(float64(lineLeft+90*len(fleet.Workloads[0].Models)), 36, "", "black: loads")
	across := func(at time.Duration) float64 { return lineLeft + lineAcross*at.Seconds()/last.Seconds() }
	for k, list := range lines {
		top := lineTop + lineHeight*(each+1)*k
		for device := range each {
			pic.Text(10, float64(top+lineHeight*device+15), "", fmt.Sprintf("%s, %d", names[k], device))
		}
		for _, s := range list {
			colour := picture.Colours[int(s.Network)%len(picture.Colours)]
			if s.Loading {
				colour = "black"
			}
			pic.Addf(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"/>`, across(s.From), top+lineHeight*int(s.Device)+2, max(across(s.To)-across(s.From), 0.2), lineHeight-5, colour)
		}
	}
	bottom := lineTop + lineHeight*(each+1)*len(names)
	for part := range 5 {
		at := last * time.Duration(part) / 4
		pic.Text(across(at)-10, float64(bottom+10), "", fmt.Sprintf("%.0f s", at.Seconds()))
	}
	if err := os.WriteFile(path, []byte(pic.String()), 0o644); err != nil {
		return fmt.Errorf("writing a picture: %w", err)
	}
	return nil
}
