/* A rank of an MPI in the two-hop experiment: COLLECTIVE ROUNDS BYTES...; the same loop as in two_hop.rs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int all = strcmp(arguments[1], "all_reduce") == 0, rounds = atoi(arguments[2]);
    for (int argument = 3; argument < count; argument++) {
        long bytes = atol(arguments[argument]);
        int length = (int)(bytes / 4);
        float *data = malloc(bytes + 4), *result = malloc(bytes + 4);
        for (int index = 0; index < length; index++) data[index] = (float)((rank + index) % 8);
        /* The first round makes connections; it is not counted. */
        for (int round = 0; round <= rounds; round++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            if (all) MPI_Allreduce(data, result, length, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            else MPI_Reduce(data, result, length, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
            double took = MPI_Wtime() - begun, longest = 0;
            for (int index = 0; (all || rank == 0) && index < length; index++) {
                float sum = 0;
                for (int other = 0; other < size; other++) sum += (float)((other + index) % 8);
                if (result[index] != sum) {
                    fprintf(stderr, "element %d is %f instead of %f\n", index, result[index], sum);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
                if (index == 64) break;
            }
            MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (rank == 0 && round > 0) {
                printf("two-hop: %ld %.6f\n", bytes, longest);
                fflush(stdout);
            }
        }
        free(data);
        free(result);
    }
    MPI_Finalize();
    return 0;
}
