package baseline

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/formats/seeded"
	"inferplan/planner/gear"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
)

// Tolerances of the cross-check: counts are equal, enumeration and bounds agree
// to 1e-4, accuracy of the same gears to 5e-4, of gears found to 1.6e-3 (the notes take
// a gear after one stream of arrivals, trials here ask for a margin), p95 to 10 % with even arrivals and to 20 %
// with Poisson ones. The notes have four digits, so that half a unit of the
// last is added.
const (
	bounded  = 1.5e-4
	accurate = 5.5e-4
	found    = 1.65e-3
	evenly   = .10
	randomly = .20
)

// Check is a figure of the cross-check's notes beside ours.
type Check struct {
	What, Notes, Ours, Difference, Tolerance string
	// OK: within the tolerance. Better: outside, on the side that is wanted and
	// within what the bound allows.
	OK, Better bool
}

type checks []Check

// number compares with an absolute tolerance.
func (c *checks) number(what string, notes, ours, tolerance float64, format string) *Check {
	return c.add(what, fmt.Sprintf(format, notes), fmt.Sprintf(format, ours), fmt.Sprintf("%+.2g", roundTo(ours-notes)), fmt.Sprintf("%.2g", tolerance), math.Abs(ours-notes) <= tolerance)
}

// count compares whole numbers.
func (c *checks) count(what string, notes, ours int) {
	c.add(what, fmt.Sprint(notes), fmt.Sprint(ours), fmt.Sprintf("%+d", ours-notes), "equal", ours == notes)
}

// share compares with a relative tolerance.
func (c *checks) share(what string, notes float64, got time.Duration, tolerance float64) *Check {
	ours := got.Seconds() * 1e3
	return c.add(what, fmt.Sprintf("%.0f", notes), fmt.Sprintf("%.1f", ours), fmt.Sprintf("%+.1f %%", 100*(ours/notes-1)), fmt.Sprintf("%.0f %%", 100*tolerance), math.Abs(ours/notes-1) <= tolerance)
}

func (c *checks) text(what, notes, ours string) {
	c.add(what, notes, ours, "", "equal", notes == ours)
}

func (c *checks) add(what, notes, ours, difference, tolerance string, ok bool) *Check {
	*c = append(*c, Check{what, notes, ours, difference, tolerance, ok, false})
	return &(*c)[len(*c)-1]
}

func roundTo(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// enumerated are the notes' numbers of cascades and of those on the front of
// total work, by grid (notes, section 3).
var enumerated = map[string][]struct{ grid, cascades, front int }{
	"bert5":  {{5, 778, 48}, {10, 10527, 99}, {20, 148917, 183}},
	"llama4": {{10, 1111, 46}, {20, 8376, 98}, {40, 64424, 208}},
	"imdb3":  {{10, 111, 44}, {20, 421, 91}, {40, 1641, 216}},
}

// zipf are the notes' planned accuracies and memory-free bounds with Zipf
// weights, by devices (section 5).
var zipf = map[string][]struct {
	devices         int
	accuracy, bound float64
}{
	"bert5":  {{1, .9250, .9256}, {2, .9321, .9324}, {3, .9343, .9345}, {4, .9351, .9352}, {5, .9354, .9355}},
	"llama4": {{1, .6005, .6298}, {2, .6370, .6429}, {3, .6435, .6478}, {4, .6466, .6502}, {5, .6491, .6512}, {6, .6505, .6516}, {8, .6513, .6518}},
	"imdb3":  {{2, .8160, .8172}, {4, .8462, .8474}, {6, .8581, .8590}, {8, .8633, .8637}},
}

// edges are the notes' gears of bert5 on three devices (section 9).
var edges = []struct {
	cascade  string
	accuracy float64
}{
	{"mini(.991) medium(.950) base", .9356},
	{"mini(.991) medium(.950) base", .9356},
	{"mini(.991) medium(.950) base", .9356},
	{"mini(.991) medium(.902) base", .9355},
	{"mini(.980) small(.899) medium(.902) base", .9344},
	{"tiny(.988) small(.804) medium(.902) base", .9332},
	{"tiny(.971) small(.804) medium(.818) base", .9321},
	{"tiny(.942) mini(.919) small(.804) medium(.818) base", .9291},
	{"tiny(.971) small(.642) medium(.818) base", .9282},
	{"tiny(.942) mini(.919) small(.642) base", .9259},
}

// CrossCheck holds the notes' figures of sections 1, 3, 5 and 9 for a family
// with its trace; large: grids of more than twenty thousand cascades, too, which
// take seconds.
func CrossCheck(ctx context.Context, f *published.Family, large bool) ([]Check, error) {
	var c checks
	if err := c.enumeration(f, large); err != nil {
		return nil, err
	}
	for _, z := range zipf[f.Name] {
		p, err := zipfProblem(f, z.devices)
		if err != nil {
			return nil, err
		}
		out, err := gear.Solve(ctx, p, nil, gear.Options{Seed: planSeed})
		if err != nil {
			return nil, fmt.Errorf("%s on %d devices: %w", f.Name, z.devices, err)
		}
		bound := out.Bound
		if f.Name == "llama4" { // memory keeps its models apart
			p.Memory = 0
			free, err := gear.Solve(ctx, p, nil, gear.Options{Seed: planSeed})
			if err != nil {
				return nil, fmt.Errorf("%s on %d devices without memory limit: %w", f.Name, z.devices, err)
			}
			bound = free.Bound
		}
		one := c.number(fmt.Sprintf("planned accuracy, D=%d", z.devices), z.accuracy, out.Accuracy, found, "%.4f")
		one.Better = !one.OK && out.Accuracy > z.accuracy && out.Accuracy <= bound
		c.number(fmt.Sprintf("bound without memory, D=%d", z.devices), z.bound, bound, bounded, "%.4f")
	}
	switch f.Name {
	case "bert5":
		return c, c.bertTrace(ctx, f)
	case "llama4":
		return c, c.llamaPlaces(f)
	}
	return c, nil
}

// planSeed and ranges are the cross-check's.
const (
	planSeed = 7
	ranges   = 10
)

func zipfProblem(f *published.Family, devices int) (*gear.Problem, error) {
	p, err := Problem(f, devices, ranges, f.SLO)
	if err != nil {
		return nil, err
	}
	p.Weights = gear.Zipf(ranges)
	return p, nil
}

// enumeration compares cascades, fronts, the most accurate cascade and the
// histogram of requests.
func (c *checks) enumeration(f *published.Family, large bool) error {
	for _, e := range enumerated[f.Name] {
		if e.cascades > 20_000 && !large {
			continue
		}
		fam := *f
		fam.Grid, fam.Memory = e.grid, 0
		p, err := Problem(&fam, 1, ranges, f.SLO)
		if err != nil {
			return err
		}
		usable := make([]bool, len(p.Models))
		for m := range usable {
			usable[m] = true
		}
		c.count(fmt.Sprintf("cascades, grid %d", e.grid), e.cascades, len(gear.Enumerate(p.Planned, e.grid, usable)))
		_, front, err := p.Fluid()
		if err != nil {
			return err
		}
		c.count(fmt.Sprintf("front, grid %d", e.grid), e.front, len(front))
		if e.grid != 10 {
			continue
		}
		best := &front[len(front)-1]
		switch f.Name {
		case "bert5":
			c.text("most accurate cascade", "mini(.991) medium(.950) base", describe(p, best))
			c.number("its accuracy", .9356, Accuracy(p, best), bounded, "%.4f")
			for r, notes := range []float64{0, .452, .312, .018, .012, .022, .062, .072, .039, .010} {
				c.number(fmt.Sprintf("requests in range %d", r+1), notes, p.ByRate[r], 5.5e-4, "%.3f")
			}
		case "llama4":
			c.text("most accurate cascade", "13B(.808) 70B", describe(p, best))
			c.number("its accuracy", .6518, Accuracy(p, best), bounded, "%.4f")
			c.number("requests in range 10", .367, p.ByRate[9], 5.5e-4, "%.3f")
		}
	}
	return nil
}

// describe writes a cascade with its thresholds as the notes do.
func describe(p *gear.Problem, c *gear.Cascade) string {
	var words []string
	for k, m := range c.Models {
		word := p.Models[m].Name
		if k < len(c.Levels) {
			word += "(" + strings.TrimPrefix(fmt.Sprintf("%.3f", p.Thresholds[m][c.Levels[k]-1]), "0") + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// bertTrace compares the gears on three devices, range by range, and what they
// show on the trace: the notes' gears, and ours.
func (c *checks) bertTrace(ctx context.Context, f *published.Family) error {
	p, err := Problem(f, 3, ranges, f.SLO)
	if err != nil {
		return err
	}
	noted, err := notedGears(p)
	if err != nil {
		return err
	}
	even, err := Execute(ctx, noted, f.Rates.Even(), Watch{})
	if err != nil {
		return err
	}
	c.count("requests of the trace", 2079057, even.Requests)
	c.number("the notes' gears, even arrivals: accuracy", .9344, even.Accuracy, accurate, "%.4f")
	c.share("the notes' gears, even arrivals: p95 ms", 134, even.P95, evenly)
	c.share("the notes' gears, even arrivals: p99 ms", 263, even.P99, evenly)
	poisson, err := Execute(ctx, noted, f.Rates.Poisson(seeded.New(1, "bench/gear")), Watch{})
	if err != nil {
		return err
	}
	c.number("the notes' gears, Poisson: accuracy", .9343, poisson.Accuracy, accurate, "%.4f")
	c.share("the notes' gears, Poisson: p95 ms", 110, poisson.P95, randomly)
	ours, err := gear.Solve(ctx, p, nil, gear.Options{Seed: planSeed})
	if err != nil {
		return err
	}
	for r := range ours.Gears {
		g := &ours.Gears[r]
		c.number(fmt.Sprintf("gear to %.0f requests/s, %s", p.Edges[r], describe(p, &g.Cascade)), edges[r].accuracy, g.Accuracy, found, "%.4f")
	}
	shown, err := Execute(ctx, ours.Tables(ours.Problem), f.Rates.Even(), Watch{})
	if err != nil {
		return err
	}
	c.number("our gears, even arrivals: accuracy", .9344, shown.Accuracy, accurate, "%.4f")
	late := c.share("our gears, even arrivals: p95 ms", 134, shown.P95, evenly)
	late.Better = !late.OK && shown.P95 < 134*time.Millisecond
	return nil
}

// notedGears are the tables of the gears that the notes give.
func notedGears(p *gear.Problem) (*policy.Tables, error) {
	pl, _, err := p.Fluid()
	if err != nil {
		return nil, err
	}
	var gears []policygear.Gear
	for r := range edges {
		c, err := parseCascade(p, edges[r].cascade)
		if err != nil {
			return nil, err
		}
		minQueue := 1
		if r == 8 {
			minQueue = 4
		}
		gears = append(gears, p.Gear(pl, c, p.Edges[r], minQueue))
	}
	return p.Tables(pl, gears), nil
}

// parseCascade reads a cascade as describe writes it.
func parseCascade(p *gear.Problem, text string) (*gear.Cascade, error) {
	c := &gear.Cascade{}
	for word := range strings.FieldsSeq(text) {
		name, threshold, some := strings.Cut(strings.TrimSuffix(word, ")"), "(")
		m := slices.IndexFunc(p.Models, func(m gear.Model) bool { return m.Name == name })
		if m < 0 {
			return nil, fmt.Errorf("cascade %q: no model %q", text, name)
		}
		c.Models = append(c.Models, uint8(m))
		if !some {
			continue
		}
		level := slices.IndexFunc(p.Thresholds[m], func(v float64) bool {
			return strings.TrimPrefix(fmt.Sprintf("%.3f", v), "0") == threshold
		})
		if level < 0 {
			return nil, fmt.Errorf("cascade %q: model %s has no threshold %s", text, name, threshold)
		}
		c.Levels = append(c.Levels, uint8(level+1))
	}
	reach, correct := p.Planned.Replay(c.Models, c.Levels)
	for _, n := range reach {
		c.Reach = append(c.Reach, int32(n))
	}
	c.Correct = int32(correct)
	return c, nil
}

// llamaPlaces compares configurations and the placement on six devices.
func (c *checks) llamaPlaces(f *published.Family) error {
	p, err := Problem(f, 6, ranges, 3*time.Second)
	if err != nil {
		return err
	}
	pl, _, err := p.Fluid()
	if err != nil {
		return err
	}
	var sets, used []string
	for i, set := range pl.Sets {
		var names []string
		for m := range p.Models {
			if set&(1<<m) != 0 {
				names = append(names, p.Models[m].Name)
			}
		}
		text := "{" + strings.Join(names, " ") + "}"
		sets = append(sets, text)
		if pl.Counts[i] > 0 {
			used = append(used, fmt.Sprintf("%d %s", pl.Counts[i], text))
		}
	}
	c.text("configurations of a device", "{3B 7B 13B}, {3B 70B}, {7B 70B}", strings.Join(sets, ", "))
	c.text("placement on 6 devices", "2 {3B 7B 13B}, 4 {7B 70B}", strings.Join(used, ", "))
	return nil
}
