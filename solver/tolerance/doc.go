// Package tolerance decides from measured values whether fresh ones seldom exceed a limit, at a
// stated confidence, by a one-sided tolerance bound of normal values (NIST/SEMATECH e-Handbook of
// Statistical Methods, section 7.2.6.3).
//
// A confidence interval is about the mean. A tolerance bound is about values that are still to be
// measured. Few values leave both mean and deviation uncertain, and both count here, by the
// noncentral t distribution: if fresh values exceeded the limit more often than allowed, the
// measured ones would show it, except with a chance of 1 - confidence.
//
// Values that follow each other in time are correlated. CorrelatedValues counts them as fewer
// independent ones, the effective number.
package tolerance
