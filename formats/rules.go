package formats

import (
	"fmt"
	"math"

	"inferplan/formats/document"
)

// rules are the rules of fields by themselves, which name theirs in the tag check. Rules over several fields stand in
// the methods named check.
var rules = document.Rules{
	"share":         {Max: 1, Expected: "a share from 0 to 1"},
	"positiveShare": {Max: 1, MinExcluded: true, Expected: "a share above 0, at most 1"},
	"margin":        {Max: 1, MaxExcluded: true, Expected: "a share of the SLO from 0 to less than 1"},
	"nonnegative":   {Max: math.Inf(1), Expected: "0 or more"},
	"count":         {Min: 1, Max: math.Inf(1), Expected: "1 or more"},
	"weight":        {Max: math.Inf(1), MinExcluded: true, Expected: "a positive weight"},
	"rate":          {Min: minRate, Max: maxRate, Expected: fmt.Sprintf("0, or %g to %g", minRate, maxRate)},
	"work":          {Max: 1e3, Expected: "a part of the usual work, at most 1000"},

	// Servers of language models.
	"tokens":       {Min: 1, Max: maxTokens, Expected: fmt.Sprintf("1 to %d", maxTokens)},
	"cachedTokens": {Max: maxTokens, Expected: fmt.Sprintf("0 to %d", maxTokens)},
	"kvTokens":     {Max: maxLLMBytes, Expected: fmt.Sprintf("0 to %d", maxLLMBytes)},
	"sequences":    {Min: 1, Max: MaxSequences, Expected: fmt.Sprintf("1 to %d", MaxSequences)},
	"fewSequences": {Max: MaxSequences, Expected: fmt.Sprintf("0 to %d", MaxSequences)},
	"figures":      {Max: maxLLMBytes, Expected: "0 or more"},
	"coefficient":  {Max: maxIterationNS, Expected: fmt.Sprintf("0 to %g", maxIterationNS)},
	"estimate":     {Max: maxEstimateNS, Expected: "0 or more"},

	// Devices.
	"cores":     {Min: 1, Max: maxCount, Expected: fmt.Sprintf("1 to %d CPUs", maxCount), Hint: "leave front_end out where it is not known"},
	"precision": {Words: []string{PrecisionFP16}},

	// Texts.
	"percentile": {Accepts: document.IsPercentile, Expected: "a percentile between p0 and p100", Hint: "write it like p99"},
	"sha256":     {Accepts: document.IsSHA256, Expected: "a SHA-256 as 64 lower-case hexadecimal digits"},
}
