package main

import (
	"fmt"
	"math"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// noise is a difference, in points of requests in time, below which two policies are equal here.
const noise = 2

// last returns the last point.
func (s *swept) last() int { return len(s.points) - 1 }

// lost returns how many points of requests in time QLM loses from one point to another.
func (s *swept) lost(policy string, from, to int) float64 {
	return s.at(from, policy).inTime() - s.at(to, policy).inTime()
}

// ahead returns how many points more of the requests QLM has in time than another policy.
func (s *swept) ahead(point int, policy string) float64 {
	return s.at(point, "QLM").inTime() - s.at(point, policy).inTime()
}

// nowhereBehind returns whether QLM is nowhere behind by more than noise.
func (s *swept) nowhereBehind() bool {
	for i := range s.points {
		for _, p := range s.policies {
			if s.ahead(i, p.Name) < -noise {
				return false
			}
		}
	}
	return true
}

// faster returns QLM's throughput in multiples of another policy's.
func (s *swept) faster(point int, policy string) float64 {
	return s.at(point, "QLM").throughput() / s.at(point, policy).throughput()
}

// fastest returns the largest of faster over the points.
func (s *swept) fastest(policy string) (most float64) {
	for i := range s.points {
		most = max(most, s.faster(i, policy))
	}
	return most
}

// slower returns how many percent of its throughput one policy loses against another.
func (s *swept) slower(point int, policy, than string) float64 {
	return 100 * (1 - s.at(point, policy).throughput()/s.at(point, than).throughput())
}

// allMet returns the smallest value of the quantity at which a policy answers 99 % in time. If there is none, it returns 0.
func (s *swept) allMet(policy string) float64 {
	for i := range s.points {
		if s.at(i, policy).inTime() >= 99 {
			return s.points[i].x
		}
	}
	return 0
}

// attained returns the requests in time of some policies at a point in words.
func (s *swept) attained(point int, policies ...string) string {
	text := s.points[point].label + ":"
	for _, p := range policies {
		text += fmt.Sprintf(" %s %.1f %%", p, s.at(point, p).inTime())
	}
	return text
}

func ablationClaims(r *instrument.Run, s *swept) {
	most, note := "no pulling", "points lost and percentage of throughput:"
	for _, o := range []string{"no pulling", "no eviction", "no state swap", "no warm start", "no balancing"} {
		note += fmt.Sprintf(" %s %.1f and %.1f;", o, s.ahead(0, o), s.slower(0, o, "QLM"))
		if s.ahead(0, o) > s.ahead(0, most) {
			most = o
		}
	}
	warm, single := s.ahead(0, "no warm start"), s.at(1, "QLM").urgent()
	s.paper(r, "warm start contributes most with several models", "most", warm, "points lost without it on W_A", note+" most: "+most, most == "no warm start", warm > noise)
	withoutOrder, withoutEviction := single-s.at(1, "no ordering").urgent(), single-s.at(1, "no eviction").urgent()
	s.paper(r, "scheduling and eviction help interactive requests with one model", "more than 2 each", withoutOrder, "points of the 30 s class lost without an order on W_B", fmt.Sprintf("without eviction %.1f", withoutEviction), withoutOrder > noise, withoutEviction > noise)
	swap := s.slower(1, "no state swap", "QLM")
	s.paper(r, "the state swap raises throughput with one model", "above 0", swap, "% lost without it on W_B",
		fmt.Sprintf("%.1f evictions per 100 requests there: what runs is due about as soon as what waits", s.at(1, "QLM").evicted()), swap > 1)
	s.paper(r, "model swapping has no part with one model", "0", s.ahead(1, "no warm start"), "points on W_B", "", math.Abs(s.ahead(1, "no warm start")) < noise)
	pulling := s.slower(0, "no pulling", "QLM")
	r.Figure(claim("pulling and swapping together shorten the drain", "QLM, figure 5", "above 0", pulling, "% of throughput lost without pulling on W_A", s.note, pulling > noise))
}

// publishedClaims are the ablation's, where the policy is read as the paper has it.
func publishedClaims(r *instrument.Run, s *swept) {
	whole, first := s.policies[0].Name, s.policies[1].Name
	lost := func(policy string) float64 { return s.at(0, whole).inTime() - s.at(0, policy).inTime() }
	most, slowest := first, first
	for _, p := range s.policies[1:] {
		if lost(p.Name) > lost(most) {
			most = p.Name
		}
		if s.slower(0, p.Name, whole) > s.slower(0, slowest, whole) {
			slowest = p.Name
		}
	}
	const warm = "published, no warm start"
	s.paper(r, "warm start contributes most with several models, by the paper's readings", "most", lost(warm), "points lost without it on W_A",
		fmt.Sprintf("most: %s, %.1f points; of throughput %s, %.1f %%", most, lost(most), slowest, s.slower(0, slowest, whole)), most == warm, slowest == warm, lost(warm) > noise)
	swap := s.slower(1, "published, no state swap", whole)
	s.paper(r, "the state swap raises throughput with one model, by the paper's readings", "above 0", swap, "% lost without it on W_B", fmt.Sprintf("%.1f evictions per 100 requests", s.at(1, whole).evicted()), swap > 1)
}

func deltaClaims(r *instrument.Run, s *swept) {
	one, four, sixteen := s.policies[0].Name, s.policies[2].Name, s.policies[4].Name
	lost := func(policy string) float64 { return s.at(0, one).inTime() - s.at(0, policy).inTime() }
	slower := s.slower(0, four, one)
	s.paper(r, "groups of 4 batches cost nearly nothing against groups of one", "0", lost(four), "points", fmt.Sprintf("%.1f %% of throughput", slower), math.Abs(lost(four)) < noise, slower < noise)
	s.paper(r, "groups of 16 batches are worse", "below", lost(sixteen), "points", "", lost(sixteen) > noise)
}

func tailClaims(r *instrument.Run, s *swept) {
	fcfs, edf, shepherd := s.fastest("FCFS"), s.fastest("EDF"), s.fastest("SHEPHERD-like")
	s.paper(r, "up to 3 to 4 times the throughput of the baselines on W_A", "3 to 4", min(fcfs, edf), "times FCFS's and EDF's",
		fmt.Sprintf("FCFS %.1f, EDF %.1f, SHEPHERD-like %.2f times: the first two change models for two requests of three, which decides the number", fcfs, edf, shepherd), fcfs >= 3, edf >= 3, shepherd >= 3)
}

func interactiveClaims(r *instrument.Run, s *swept) {
	ahead := true
	for _, p := range s.policies[1:] {
		ahead = ahead && s.ahead(1, p.Name) > 0
	}
	few, five, many := s.at(0, "QLM").inTime(), s.at(1, "QLM").inTime(), s.at(s.last(), "QLM").inTime()
	s.paper(r, "more than 90 % of SLOs where less than 5 % of requests are interactive", "above 90", min(few, five), "%",
		fmt.Sprintf("2 %% interactive: %.1f %%, of the class %.1f %%; 5 %%: %.1f %%, of the class %.1f %%", few, s.at(0, "QLM").urgent(), five, s.at(1, "QLM").urgent()), few > 90, five > 90, ahead)
	s.paper(r, "no order meets all SLOs where most requests are interactive", "below 100", many, "%", "80 % interactive", many < 100)
}

func scaleClaims(r *instrument.Run, s *swept) {
	policy, least, note := s.policies[1].Name, 100.0, "instances come 5 s after the decision, from four on; in the mean there are"
	for i := range s.points {
		list := s.at(i, policy)
		least = min(least, list.inTime())
		note += fmt.Sprintf(" %.1f at %s rps", list.mean(func(o *fleet.Outcome) float64 { return o.Used }), s.points[i].label)
	}
	s.paper(r, "scale-up brings all requests in time", "100", least, "%", note, least >= 99.95, least >= 99)
}

func singleClaims(r *instrument.Run, s *swept) {
	gain := func(policy string) float64 { return max(0, 100*(s.fastest(policy)-1)) }
	fcfs, edf, shepherd := gain("FCFS"), gain("EDF"), gain("SHEPHERD-like")
	s.paper(r, "20 % more throughput than vLLM and EDF with one model", "20", min(fcfs, edf), "%", "the same continuous batching has the same throughput", fcfs >= 20, edf >= 20)
	s.paper(r, "50 % more throughput than SHEPHERD with one model", "50", shepherd, "%", "the most over the loads", shepherd >= 50, shepherd >= 25)
	empty := s.ahead(0, "FCFS")
	s.paper(r, "no benefit with an empty queue", "0", empty, "points over FCFS", "3.63 rps", math.Abs(empty) < noise)
	fall, hold := s.lost("FCFS", 0, 2), s.lost("QLM", 0, 2)
	s.paper(r, "attainment holds as the queue grows, where that of the baselines falls", "less than half of FCFS's", hold, "points lost from 3.63 to 9.08 rps",
		fmt.Sprintf("FCFS loses %.1f; rps %s", fall, s.attained(s.last(), "QLM", "EDF", "FCFS")), hold < fall/2, s.ahead(s.last(), "EDF") > noise)
}

func hardwareClaims(r *instrument.Run, s *swept) {
	mixed, alike := 0.0, 0.0
	for i := range s.points {
		if i == 0 || i == s.last() {
			alike = max(alike, s.faster(i, "random")-1)
		} else {
			mixed = max(mixed, s.faster(i, "random")-1)
		}
	}
	s.paper(r, "the gain over random placement is 2 to 5 times as large on mixed hardware", "2 to 5", mixed/max(alike, 1e-3), "times",
		fmt.Sprintf("at most %+.0f %% of throughput to the last answer on mixed and %+.0f %% on equal instances", 100*mixed, 100*alike), mixed >= 2*alike, mixed > 0)
}

func megaClaims(r *instrument.Run, s *swept) {
	few, many := s.ahead(1, "SHEPHERD-like"), s.ahead(s.last(), "SHEPHERD-like")
	s.paper(r, "the benefit is largest for few mega prompts, and falls with their share", "falls", few-many, "points from a share of .01 to .1",
		s.attained(1, "QLM", "SHEPHERD-like", "partition")+"; "+s.attained(s.last(), "QLM", "SHEPHERD-like", "partition"), few > many+noise, few > noise)
}

func burstClaims(r *instrument.Run, s *swept) {
	lost := s.lost("QLM", 0, s.last())
	s.paper(r, "attainment holds under bursts", "less than 2", lost, "points lost from variation 1 to 8",
		s.attained(0, "QLM", "SHEPHERD-like", "partition")+"; "+s.attained(s.last(), "QLM", "SHEPHERD-like", "partition"), lost < noise, s.ahead(s.last(), "SHEPHERD-like") > 0)
}

func sloClaims(r *instrument.Run, s *swept) {
	for _, c := range []struct {
		policy string
		scale  float64
	}{{"EDF", 3}, {"SHEPHERD-like", 5}, {"FCFS", 11}} {
		met := s.allMet(c.policy)
		s.paper(r, fmt.Sprintf("%s meets all SLOs once they are %g times as long", c.policy, c.scale), fmt.Sprint(c.scale), met, "times",
			"99 % of requests; 0: not up to 11 times. With a change of model for two requests of three the queue grows without end, and no SLO is long enough", met == c.scale, met > 0 && met <= 11)
	}
	s.paper(r, "QLM meets more SLOs than the baselines at every scale", "nowhere 2 points behind", s.allMet("QLM"), "times, where it meets 99 %", "", s.nowhereBehind())
}

func fleetsClaims(r *instrument.Run, s *swept) {
	note := ""
	for i := range s.points {
		note += s.attained(i, "QLM", "SHEPHERD-like", "partition", "gateway-like") + "; "
	}
	s.paper(r, "attainment on fleets of up to 100 instances is above the baselines'", "nowhere 2 points behind", s.at(s.last(), "QLM").inTime(), "% on 100", note, s.nowhereBehind())
}

func memoryClaims(r *instrument.Run, s *swept) {
	above := func(i int, p string) bool { return s.at(i, "QLM").kv() > s.at(i, p).kv()+noise }
	alike := func(i int, p string) bool { return math.Abs(s.at(i, "QLM").kv()-s.at(i, p).kv()) <= noise }
	note := func(i int) string {
		return fmt.Sprintf("FCFS %.1f, EDF %.1f, SHEPHERD-like %.1f", s.at(i, "FCFS").kv(), s.at(i, "EDF").kv(), s.at(i, "SHEPHERD-like").kv())
	}
	s.paper(r, "more GPU memory is in use with several models than under the baselines", "above", s.at(0, "QLM").kv(), "% of KV memory, in the mean over instances until the last answer", note(0), above(0, "FCFS"), above(0, "EDF"), above(0, "SHEPHERD-like"))
	s.paper(r, "as much GPU memory is in use with one model as under EDF and vLLM, and more than under SHEPHERD", "alike", s.at(1, "QLM").kv(), "% of KV memory", note(1), alike(1, "FCFS"), alike(1, "EDF"), above(1, "SHEPHERD-like"))
}

func llamaClaims(r *instrument.Run, s *swept) {
	s.paper(r, "40 to 90 points more requests in time than vLLM with several models", "40 to 90", s.ahead(1, "FCFS"), "points", "rps "+s.attained(1, "QLM", "gateway-like", "partition", "SHEPHERD-like"), s.ahead(1, "FCFS") >= 40)
}
