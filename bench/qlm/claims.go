package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
)

// claim is a row of what the paper claims beside what is measured here. It holds in
// part where one of several things does.
func claim(text, source, asked string, measured float64, unit, note string, holds ...bool) figures.Figure {
	n := 0
	for _, h := range holds {
		if h {
			n++
		}
	}
	verdict := figures.Partly
	switch n {
	case 0:
		verdict = figures.No
	case len(holds):
		verdict = figures.Yes
	}
	return figures.Figure{Claim: "paper: " + text, Source: source, Asked: asked, Measured: measured, Unit: unit, Holds: verdict, Note: note}
}

func inTime(p *pooled) float64 {
	mean, _ := p.mean()
	return mean
}

// noise is a difference, in points of requests in time, below which two policies
// are equal here.
const noise = 2

func tailClaims(s *swept) []figures.Figure {
	best := map[string]float64{}
	for i := range s.points {
		for _, p := range []string{"FCFS", "EDF", "SHEPHERD-like"} {
			best[p] = max(best[p], s.at(i, "QLM").throughput/s.at(i, p).throughput)
		}
	}
	return []figures.Figure{claim("up to 3 to 4 times the throughput of the baselines on W_A", s.source, "3 to 4", min(best["FCFS"], best["EDF"]), "times FCFS's and EDF's",
		fmt.Sprintf("FCFS %.1f, EDF %.1f, SHEPHERD-like %.2f times: the first two change models for two requests of three, which decides the number", best["FCFS"], best["EDF"], best["SHEPHERD-like"]),
		best["FCFS"] >= 3, best["EDF"] >= 3, best["SHEPHERD-like"] >= 3)}
}

func interactiveClaims(s *swept) []figures.Figure {
	few, many := s.at(0, "QLM"), s.at(len(s.points)-1, "QLM")
	ahead := true
	for _, p := range s.policies[1:] {
		ahead = ahead && inTime(s.at(1, p.Name)) < inTime(s.at(1, "QLM"))
	}
	return []figures.Figure{
		claim("more than 90 % of SLOs where less than 5 % of requests are interactive", s.source, "above 90", min(inTime(few), inTime(s.at(1, "QLM"))), "%",
			fmt.Sprintf("2 %% interactive: %.1f %%, of the class %.1f %%; 5 %%: %.1f %%, of the class %.1f %%", inTime(few), few.class[0], inTime(s.at(1, "QLM")), s.at(1, "QLM").class[0]),
			inTime(few) > 90, inTime(s.at(1, "QLM")) > 90, ahead),
		claim("no order meets all SLOs where most requests are interactive", s.source, "below 100", inTime(many), "%", "80 % interactive", inTime(many) < 100),
	}
}

func scaleClaims(s *swept) []figures.Figure {
	least, note := 100.0, ""
	for i := range s.points {
		x := s.at(i, s.policies[1].Name)
		least = min(least, inTime(x))
		note += fmt.Sprintf("%g rps: %.2f %% with %.1f instances in the mean; ", s.points[i].x, inTime(x), x.used)
	}
	return []figures.Figure{claim("scale-up brings all requests in time", s.source, "100", least, "%", note+"instances come 5 s after the decision, from four on", least >= 99.95, least >= 99)}
}

func singleClaims(s *swept) []figures.Figure {
	last, best := len(s.points)-1, map[string]float64{}
	for i := range s.points {
		for _, p := range []string{"FCFS", "EDF", "SHEPHERD-like"} {
			best[p] = max(best[p], 100*(s.at(i, "QLM").throughput/s.at(i, p).throughput-1))
		}
	}
	fall := inTime(s.at(0, "FCFS")) - inTime(s.at(2, "FCFS"))
	hold := inTime(s.at(0, "QLM")) - inTime(s.at(2, "QLM"))
	return []figures.Figure{
		claim("20 % more throughput than vLLM and EDF with one model", s.source, "20", min(best["FCFS"], best["EDF"]), "%", "the same continuous batching has the same throughput", best["FCFS"] >= 20, best["EDF"] >= 20),
		claim("50 % more throughput than SHEPHERD with one model", s.source, "50", best["SHEPHERD-like"], "%", "the most over the loads", best["SHEPHERD-like"] >= 50, best["SHEPHERD-like"] >= 25),
		claim("no benefit with an empty queue", s.source, "0", inTime(s.at(0, "QLM"))-inTime(s.at(0, "FCFS")), "points over FCFS", "3.63 rps", math.Abs(inTime(s.at(0, "QLM"))-inTime(s.at(0, "FCFS"))) < noise),
		claim("attainment holds as the queue grows, where that of the baselines falls", s.source, "", hold, "points lost from 3.63 to 9.08 rps",
			fmt.Sprintf("FCFS loses %.1f; at %g rps QLM has %.1f %%, EDF %.1f, FCFS %.1f", fall, s.points[last].x, inTime(s.at(last, "QLM")), inTime(s.at(last, "EDF")), inTime(s.at(last, "FCFS"))),
			hold < fall/2, inTime(s.at(last, "QLM")) > inTime(s.at(last, "EDF"))+noise),
	}
}

func hardwareClaims(s *swept) []figures.Figure {
	gain := func(i int, p string) float64 { return s.at(i, "QLM").throughput/s.at(i, p).throughput - 1 }
	mixed, alike, note := 0.0, 0.0, ""
	for i := range s.points {
		if i == 0 || i == len(s.points)-1 {
			alike = max(alike, gain(i, "random"))
		} else {
			mixed = max(mixed, gain(i, "random"))
		}
		note += fmt.Sprintf("%g A10s: %+.0f %% over random, %+.0f %% over round robin; ", s.points[i].x, 100*gain(i, "random"), 100*gain(i, "round robin"))
	}
	return []figures.Figure{claim("the gain over random placement is 2 to 5 times as large on mixed hardware", s.source, "2 to 5", mixed/max(alike, 1e-3), "times", note+"throughput to the last answer", mixed >= 2*alike, mixed > 0)}
}

func megaClaims(s *swept) []figures.Figure {
	gain := func(i int) float64 { return inTime(s.at(i, "QLM")) - inTime(s.at(i, "SHEPHERD-like")) }
	note := ""
	for i := range s.points {
		note += fmt.Sprintf("%g: %.1f %% against %.1f (SHEPHERD-like), %.1f (partition), %.1f (gateway-like); ", s.points[i].x, inTime(s.at(i, "QLM")), inTime(s.at(i, "SHEPHERD-like")), inTime(s.at(i, "partition")), inTime(s.at(i, "gateway-like")))
	}
	last := len(s.points) - 1
	return []figures.Figure{claim("the benefit is largest for few mega prompts, and falls with their share", s.source, "falls", gain(1)-gain(last), "points from a share of .01 to .1", note, gain(1) > gain(last)+noise, gain(1) > noise)}
}

func burstClaims(s *swept) []figures.Figure {
	last := len(s.points) - 1
	first, end := inTime(s.at(0, "QLM")), inTime(s.at(last, "QLM"))
	return []figures.Figure{claim("attainment holds under bursts", s.source, "", first-end, "points lost from variation 1 to 8",
		fmt.Sprintf("%.1f %% to %.1f %%; SHEPHERD-like %.1f to %.1f, partition %.1f to %.1f", first, end, inTime(s.at(0, "SHEPHERD-like")), inTime(s.at(last, "SHEPHERD-like")), inTime(s.at(0, "partition")), inTime(s.at(last, "partition"))),
		first-end < noise, end > inTime(s.at(last, "SHEPHERD-like")))}
}

// allMet is the smallest SLO scale with which a policy answers as good as all in
// time. If none does, it returns 0.
func allMet(s *swept, policy string) float64 {
	for i := range s.points {
		if inTime(s.at(i, policy)) >= 99 {
			return s.points[i].x
		}
	}
	return 0
}

func sloClaims(s *swept) []figures.Figure {
	var out []figures.Figure
	for _, c := range []struct {
		policy string
		scale  float64
	}{{"EDF", 3}, {"SHEPHERD-like", 5}, {"FCFS", 11}} {
		got := allMet(s, c.policy)
		out = append(out, claim(fmt.Sprintf("%s meets all SLOs once they are %g times as long", c.policy, c.scale), s.source, fmt.Sprint(c.scale), got, "times",
			"99 % of requests; 0: not up to 11 times. With a change of model for two requests of three the queue grows without end, and no SLO is long enough", got == c.scale, got > 0 && got <= 11))
	}
	return append(out, claim("QLM meets more SLOs than the baselines at every scale", s.source, "", allMet(s, "QLM"), "times, where it meets 99 %", "", ahead(s)))
}

// ahead returns whether QLM is nowhere behind by more than noise.
func ahead(s *swept) bool {
	for i := range s.points {
		for _, p := range s.policies {
			if inTime(s.at(i, p.Name)) > inTime(s.at(i, "QLM"))+noise {
				return false
			}
		}
	}
	return true
}

func fleetsClaims(s *swept) []figures.Figure {
	note := ""
	for i := range s.points {
		note += fmt.Sprintf("%g: %.1f %% (SHEPHERD-like %.1f, partition %.1f, gateway-like %.1f); ", s.points[i].x, inTime(s.at(i, "QLM")), inTime(s.at(i, "SHEPHERD-like")), inTime(s.at(i, "partition")), inTime(s.at(i, "gateway-like")))
	}
	return []figures.Figure{claim("attainment on fleets of up to 100 instances is above the baselines'", s.source, "", inTime(s.at(len(s.points)-1, "QLM")), "% on 100", note, ahead(s))}
}

func llamaClaims(s *swept) []figures.Figure {
	return []figures.Figure{claim("40 to 90 points more requests in time than vLLM with several models", s.source, "40 to 90", inTime(s.at(1, "QLM"))-inTime(s.at(1, "FCFS")), "points",
		fmt.Sprintf("%g rps: QLM %.1f %%, gateway-like %.1f, partition %.1f, SHEPHERD-like %.1f", s.points[1].x, inTime(s.at(1, "QLM")), inTime(s.at(1, "gateway-like")), inTime(s.at(1, "partition")), inTime(s.at(1, "SHEPHERD-like"))),
		inTime(s.at(1, "QLM"))-inTime(s.at(1, "FCFS")) >= 40)}
}

func memoryClaims(s *swept) []figures.Figure {
	note := func(i int) string {
		return fmt.Sprintf("FCFS %.1f, EDF %.1f, SHEPHERD-like %.1f", s.at(i, "FCFS").kv, s.at(i, "EDF").kv, s.at(i, "SHEPHERD-like").kv)
	}
	above := func(i int, p string) bool { return s.at(i, "QLM").kv > s.at(i, p).kv+noise }
	alike := func(i int, p string) bool { return math.Abs(s.at(i, "QLM").kv-s.at(i, p).kv) <= noise }
	return []figures.Figure{
		claim("more GPU memory is in use with several models than under the baselines", s.source, "above", s.at(0, "QLM").kv, "% of KV memory, in the mean over instances until the last answer", note(0), above(0, "FCFS"), above(0, "EDF"), above(0, "SHEPHERD-like")),
		claim("as much GPU memory is in use with one model as under EDF and vLLM, and more than under SHEPHERD", s.source, "alike", s.at(1, "QLM").kv, "% of KV memory", note(1), alike(1, "FCFS"), alike(1, "EDF"), above(1, "SHEPHERD-like")),
	}
}

// offClaims returns the gains of estimators that follow the instances where they are off.
func offClaims(s *swept) []figures.Figure {
	won, note := 0.0, ""
	for i := range s.points {
		with, without := inTime(s.at(i, "QLM")), inTime(s.at(i, "no following"))
		won = max(won, with-without)
		note += fmt.Sprintf("%g times: %.1f %%, without %.1f; ", s.points[i].x, with, without)
	}
	return []figures.Figure{{Claim: "estimators that follow the instances, where work is planned as half to twice what it is: the most that it wins", Source: s.source, Measured: won, Unit: "points", Note: note}}
}

func deltaClaims(s *swept) []figures.Figure {
	name := func(k int) *pooled { return s.by[0][k] }
	note := ""
	for k, p := range s.policies {
		note += fmt.Sprintf("%s: %.1f %%, %.2f requests/s, %.2g positions; ", p.Name, inTime(name(k)), name(k).throughput, name(k).searched)
	}
	slower := 100 * (1 - name(2).throughput/name(0).throughput)
	return []figures.Figure{
		claim("groups of 4 batches cost nearly nothing against groups of one", s.source, "0", inTime(name(0))-inTime(name(2)), "points", fmt.Sprintf("%.1f %% of throughput; ", slower)+note, math.Abs(inTime(name(0))-inTime(name(2))) < noise, slower < noise),
		claim("groups of 16 batches are worse", s.source, "below", inTime(name(0))-inTime(name(4)), "points", "", inTime(name(0))-inTime(name(4)) > noise),
	}
}

func ablationClaims(s *swept) []figures.Figure {
	lost := func(point int, policy string) float64 {
		return inTime(s.at(point, "QLM")) - inTime(s.at(point, policy))
	}
	slower := func(point int, policy string) float64 {
		return 100 * (1 - s.at(point, policy).throughput/s.at(point, "QLM").throughput)
	}
	operations, note := []string{"no pulling", "no eviction", "no state swap", "no warm start", "no balancing"}, ""
	most := operations[0]
	for _, o := range operations {
		note += fmt.Sprintf("%s %.1f points and %.1f %% of throughput; ", o, lost(0, o), slower(0, o))
		if lost(0, o) > lost(0, most) {
			most = o
		}
	}
	return []figures.Figure{
		claim("warm start contributes most with several models", s.source, "most", lost(0, "no warm start"), "points lost without it on W_A", note+"most: "+most, most == "no warm start", lost(0, "no warm start") > noise),
		claim("scheduling and eviction help interactive requests with one model", s.source, "", s.at(1, "QLM").class[0]-s.at(1, "no ordering").class[0], "points of the 30 s class lost without an order on W_B",
			fmt.Sprintf("without eviction %.1f", s.at(1, "QLM").class[0]-s.at(1, "no eviction").class[0]), s.at(1, "QLM").class[0]-s.at(1, "no ordering").class[0] > noise, s.at(1, "QLM").class[0]-s.at(1, "no eviction").class[0] > noise),
		claim("the state swap raises throughput with one model", s.source, "above 0", slower(1, "no state swap"), "% lost without it on W_B",
			fmt.Sprintf("%.1f evictions per 100 requests there: what runs is due about as soon as what waits", s.at(1, "QLM").evicted), slower(1, "no state swap") > 1),
		claim("model swapping has no part with one model", s.source, "0", lost(1, "no warm start"), "points on W_B", "", math.Abs(lost(1, "no warm start")) < noise),
		claim("pulling and swapping together shorten the drain", "QLM, figure 5", "above 0", slower(0, "no pulling"), "% of throughput lost without pulling on W_A", "", slower(0, "no pulling") > noise),
	}
}

// publishedClaims are the ablation's, where the policy is read as the paper has it.
func publishedClaims(s *swept) []figures.Figure {
	whole := s.policies[0].Name
	lost := func(point int, policy string) (points, throughput float64) {
		x, y := s.at(point, whole), s.at(point, policy)
		return inTime(x) - inTime(y), 100 * (1 - y.throughput/x.throughput)
	}
	note, most, fastest := "", s.policies[1].Name, s.policies[1].Name
	for _, p := range s.policies[1:] {
		points, slower := lost(0, p.Name)
		note += fmt.Sprintf("%s: %.1f points, %.1f %% of throughput; ", p.Name, points, slower)
		if than, _ := lost(0, most); points > than {
			most = p.Name
		}
		if _, than := lost(0, fastest); slower > than {
			fastest = p.Name
		}
	}
	warm, _ := lost(0, "published, no warm start")
	_, swap := lost(1, "published, no state swap")
	return []figures.Figure{
		claim("warm start contributes most with several models, by the paper's readings", s.source, "most", warm, "points lost without it on W_A", note, most == "published, no warm start", fastest == "published, no warm start", warm > noise),
		claim("the state swap raises throughput with one model, by the paper's readings", s.source, "above 0", swap, "% lost without it on W_B", fmt.Sprintf("%.1f evictions per 100 requests", s.at(1, whole).evicted), swap > 1),
	}
}
