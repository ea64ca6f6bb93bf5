package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// listPolicies, as the value of --policy, prints the policies of the plan's kind.
const listPolicies = "list"

// policyFlag defines the flag --policy of a verb that takes a plan as its argument or by the flag --plan, and lets
// the shell complete it to the policies of the plan's kind.
func policyFlag(cmd *cobra.Command, f *pflag.FlagSet, name *string) {
	f.StringVar(name, "policy", "", "run-time policy, by the kind of the plan ("+policies.NamesByKind()+"; default the plan's); list describes those of the plan's kind")
	err := cmd.RegisterFlagCompletionFunc("policy", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		path := planArgument(args)
		if flag := cmd.Flags().Lookup("plan"); flag != nil {
			path = flag.Value.String()
		}
		words := append(policies.Names(), listPolicies)
		if plan, err := formats.ReadPlan(path); err == nil {
			if tables, err := policies.Compile(plan); err == nil {
				words = []string{listPolicies}
				for _, s := range policies.Summaries(tables) {
					words = append(words, s.Name+"\t"+s.Text)
				}
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // no such flag: this program is wrong
		panic(err)
	}
}

// errListed ends a verb that printed the policies in place of its work.
var errListed = &exitError{code: exitDone}

// checkPolicy returns an error if a policy named by --policy does not run plans with these tables. It names those that
// do, with a line each. For the name list it prints these lines and returns errListed.
func (p *printer) checkPolicy(name string, tables *policy.Tables) error {
	if name == "" {
		return nil
	}
	lines := document.Map(policies.Summaries(tables), func(s *policies.Summary) string { return fmt.Sprintf("%-12s %s", s.Name, s.Text) })
	if name == listPolicies {
		if p.json {
			return errors.Join(p.PrintJSON(policies.Summaries(tables)), errListed)
		}
		p.printLines(lines)
		return errListed
	}
	_, err := policies.New(formats.PolicySpec{Name: name}, tables)
	if e, ok := errors.AsType[*document.Error](err); ok && e.Path == "policy.name" {
		hint := strings.TrimPrefix(e.Hint+"\n  ", "\n  ") + "policies of such plans:\n    " + strings.Join(lines, "\n    ")
		return withCode(exitUsage, &document.Error{Path: "--policy", Found: e.Found, Expected: e.Expected, Hint: hint})
	}
	return withCode(exitUsage, err)
}
