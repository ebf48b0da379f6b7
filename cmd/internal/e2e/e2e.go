// Package e2e has the tests that run the real programs against a real Redis and
// a simulated Discord, and kill them.
package e2e
